#!lua flags=allow-oom
-- Decrements the number of groups that each user can still join.
--
-- item key room  string  number of groups that the user can still join; missing: unknown
--
-- returns for each item 1 if the quota was used, 0 if the user's groups have to be counted
local out = {}
for k = 1, #KEYS do
  out[k] = 0
  if (tonumber(redis.call('GET', KEYS[k])) or 0) > 0 then
    redis.call('DECR', KEYS[k])
    out[k] = 1
  end
end
return out
