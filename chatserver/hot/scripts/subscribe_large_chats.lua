#!lua flags=allow-oom
-- Subscribes a gateway to large chats, or unsubscribes it, and returns the chats' state.
--
-- arg epoch    string   current epoch of the partition
-- arg gateway  string
-- arg ttl_ms   integer  TTL without a refresh; 0: unsubscribe
-- item key chat     hash  the chat's `seq`, `ts`, `gate` and other fields
-- item key watchers zset  gateway to expiry
-- item key members  hash  user to "role:joined"
-- item arg user     string user to check for membership, or empty
--
-- returns a flat list; for each item the chat's seq; 1 if the chat is loaded in this epoch, else 0;
-- the version at which it became large, or 0; and the user's joined seq, or 0 for a non-member
local call = redis.call
local ttl_ms = tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out, n = {}, 0
for k = 1, #KEYS, 3 do
  local user, joined = ARGV[4 + (k - 1) / 3], 0
  if ttl_ms == 0 then
    call('ZREM', KEYS[k + 1], ARGV[2])
  else
    call('ZADD', KEYS[k + 1], string.format('%.0f', now + ttl_ms), ARGV[2])
    call('PEXPIRE', KEYS[k + 1], ttl_ms)
  end
  call('ZREMRANGEBYSCORE', KEYS[k + 1], '-inf', string.format('%.0f', now))
  local head = call('HMGET', KEYS[k], 'seq', 'gate', 'large')
  local is_open = head[2] and string.sub(head[2], 1, #ARGV[1] + 1) == ARGV[1] .. ':'
  if user ~= '' then
    local member = call('HGET', KEYS[k + 2], user)
    if member then joined = math.max(1, tonumber(string.match(member, '^[^:]*:(%d+)')) or 1) end
  end
  out[n + 1], out[n + 2] = tonumber(head[1]) or 0, is_open and 1 or 0
  out[n + 3], out[n + 4] = tonumber(head[3]) or 0, joined
  n = n + 4
end
return out
