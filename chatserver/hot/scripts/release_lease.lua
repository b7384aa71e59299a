#!lua flags=allow-oom
-- Releases a lease, if the caller still holds it.
--
-- key lease  hash    owner, token, until_ms
-- arg owner  string
--
-- returns 1 if the caller held it, otherwise 0
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', '')
return 1
