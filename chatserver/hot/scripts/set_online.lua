#!lua flags=allow-oom
-- Marks users as online or offline on a gateway, and returns the state of their inboxes.
--
-- key seqs       hash     user to newest inbox seq
-- key where      hash     user to gateways, comma-separated
-- arg epoch      string   current epoch of the partition
-- arg gateway    string
-- arg ttl_ms     integer  TTL without a refresh; 0: the users are offline on this gateway
-- item key box     hash    user state: chats and read marks
-- item key online  zset    gateway to expiry
-- item key inbox   stream   entry "<seq>-<n>" covers the seqs from <seq> - <n> to <seq>
-- item arg user    string
--
-- returns for each item {inbox_seq, first inbox_seq that the inbox still has, 1 if the user state
-- was loaded in this epoch}
local call = redis.call
local epoch, gateway, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_ms, expiry_ms = string.format('%.0f', now), string.format('%.0f', now + ttl_ms)
local out, n, a = {}, 0, 4
for k = 3, #KEYS, 3 do
  local user, online = ARGV[a], KEYS[k + 1]
  if ttl_ms == 0 then
    call('ZREM', online, gateway)
  else
    call('ZADD', online, expiry_ms, gateway)
    call('PEXPIRE', online, ttl_ms)
  end
  call('ZREMRANGEBYSCORE', online, '-inf', now_ms)
  -- `where` is a copy of `online` for commits, which read it for all recipients in one call.
  local gateways = table.concat(call('ZRANGE', online, 0, -1), ',')
  if gateways == '' then
    call('HDEL', KEYS[2], user)
  elseif call('HGET', KEYS[2], user) ~= gateways then
    call('HSET', KEYS[2], user, gateways)
  end
  local seq = tonumber(call('HGET', KEYS[1], user) or 0)
  local first = call('XRANGE', KEYS[k + 2], '-', '+', 'COUNT', 1)[1]
  out[n + 1] = seq
  local newest, before = string.match(first and first[1] or '', '^(%d+)-(%d+)$')
  out[n + 2] = newest and newest - before or seq + 1
  out[n + 3] = call('HGET', KEYS[k], 'known') == epoch and 1 or 0
  n = n + 3
  a = a + 1
end
return out
