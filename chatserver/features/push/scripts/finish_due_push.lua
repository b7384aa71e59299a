#!lua flags=allow-oom
-- Finishes the pushes of a chat that `claim_due_pushes` returned: removes the chat, or delays it.
--
-- The chat stays due if a message has been committed since it was claimed.
--
-- key due       zset    chat to the time its pushes are due (ms)
-- key since     hash    chat to the first seq that needs pushes
-- key epoch     hash    `epoch`: epoch that this Redis holds
-- arg chat      string
-- arg time      number  due time, as returned by `claim_due_pushes`
-- arg next      integer first seq that still needs pushes
-- arg delay_ms  integer time until the chat is due again; -1: never
-- arg epoch     string  epoch of the claim. Later epochs may assign the seqs before `next` again
--
-- returns 1 if the chat was removed, 0 if it stays due
local call, format = redis.call, string.format
if call('HGET', KEYS[3], 'epoch') ~= ARGV[5] then return 0 end
local delay_ms, next_seq = tonumber(ARGV[4]), tonumber(ARGV[3])
if tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or -1) == tonumber(ARGV[2]) then
  if delay_ms < 0 then
    call('ZREM', KEYS[1], ARGV[1])
    call('HDEL', KEYS[2], ARGV[1])
    return 1
  end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  call('ZADD', KEYS[1], format('%.0f', now + delay_ms), ARGV[1])
end
if tonumber(call('HGET', KEYS[2], ARGV[1]) or 0) < next_seq then
  call('HSET', KEYS[2], ARGV[1], format('%d', next_seq))
end
return 0
