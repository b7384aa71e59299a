#!lua flags=allow-oom
-- Marks what of a user has been ended: tokens of before a moment, logins, the user himself.
--
-- key revoked  hash     before, banned, and s:<login> of each login that was ended
-- arg before   integer  seconds since 1970; a mark only rises; 0: leave it
-- arg banned   string   1: banned, 0: no longer, empty: leave it
-- arg ttl_s    integer  as long as a token lives; marks of a banned user stay until the ban ends
-- arg logins   string   comma separated; may be empty
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
