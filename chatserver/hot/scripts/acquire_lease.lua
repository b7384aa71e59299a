#!lua flags=allow-oom
-- Acquires or renews a lease; each new holder gets a higher token.
--
-- key lease   hash    owner, token, until_ms (on Redis's clock)
-- arg owner   string
-- arg ttl_ms  integer
--
-- returns the fencing token, or 0 while another owner holds the lease
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = call('HMGET', KEYS[1], 'owner', 'token', 'until_ms')
local token = tonumber(held[2]) or 0
local is_free = not held[1] or held[1] == '' or tonumber(held[3]) <= now
if held[1] ~= ARGV[1] or is_free then
  if not is_free then return 0 end
  token = token + 1
end
call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token,
  'until_ms', string.format('%.0f', now + tonumber(ARGV[2])))
return token
