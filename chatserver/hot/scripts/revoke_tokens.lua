#!lua flags=allow-oom
-- Revokes a user's tokens (those issued before a given time, or by given logins), and sets or lifts
-- a ban.
--
-- key revoked  hash     before, banned, and s:<login> of each revoked login
-- arg before   integer  seconds since 1970; never decreases; 0: unchanged
-- arg banned   string   1: banned, 0: not banned, empty: unchanged
-- arg ttl_s    integer  lifetime of a token; marks of a banned user stay until the ban ends
-- arg logins   string   comma-separated; may be empty
--
-- returns 1
local call = redis.call
local key, before, banned = KEYS[1], tonumber(ARGV[1]), ARGV[2]
if before > (tonumber(call('HGET', key, 'before')) or 0) then
  call('HSET', key, 'before', ARGV[1])
end
for login in string.gmatch(ARGV[4], '[^,]+') do
  call('HSET', key, 's:' .. login, '1')
end
if banned == '1' then
  call('HSET', key, 'banned', '1')
elseif banned == '0' then
  call('HDEL', key, 'banned')
end
if call('HEXISTS', key, 'banned') == 1 then
  call('PERSIST', key)
else
  call('EXPIRE', key, ARGV[3])
end
return 1
