#!lua flags=allow-oom
-- Adds a process's DynamoDB usage since its last report to the totals of a day. Idempotent.
-- Keeps only the heaviest chats, with the algorithm of chatserver/telemetry/heavy_hitters.py.
--
-- key units    hash    capacity units by purpose
-- key reads    zset    chat to read units
-- key writes   zset    chat to write units
-- key flushes  hash    process to the number of its last report that was added
-- arg process  string
-- arg number   integer number of this report; increases with each report of the process
-- arg size     integer number of heaviest chats to keep; the sets have at most twice as many
-- arg ttl_s    integer
-- item arg list   string units, reads or writes
-- item arg name   string
-- item arg amount string
--
-- returns 1, or 0 if this report has already been added
local call = redis.call
local places = { units = KEYS[1], reads = KEYS[2], writes = KEYS[3] }
if tonumber(call('HGET', KEYS[4], ARGV[1]) or 0) >= tonumber(ARGV[2]) then return 0 end
call('HSET', KEYS[4], ARGV[1], ARGV[2])
for at = 5, #ARGV, 3 do
  local command = ARGV[at] == 'units' and 'HINCRBYFLOAT' or 'ZINCRBY'
  if command == 'ZINCRBY' then
    call(command, places[ARGV[at]], ARGV[at + 2], ARGV[at + 1])
  else
    call(command, places[ARGV[at]], ARGV[at + 1], ARGV[at + 2])
  end
end
local size = tonumber(ARGV[3])
for _, key in ipairs({ KEYS[2], KEYS[3] }) do
  if call('ZCARD', key) > 2 * size then
    local edge = call('ZREVRANGE', key, size, size, 'WITHSCORES')[2]
    call('ZREMRANGEBYSCORE', key, '-inf', edge)
    for _, name in ipairs(call('ZRANGE', key, 0, -1)) do call('ZINCRBY', key, '-' .. edge, name) end
  end
end
for _, key in ipairs(KEYS) do call('EXPIRE', key, ARGV[4]) end
return 1
