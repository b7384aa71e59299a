#!lua flags=no-writes
-- Runs read-only commands on keys of one partition atomically. Unlike MULTI, it also runs when
-- Redis is out of memory.
--
-- KEYS are the keys of the commands. ARGV has for each command its number of words, then the words.
--
-- returns the reply of each command
local out, at = {}, 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  out[#out + 1] = redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return out
