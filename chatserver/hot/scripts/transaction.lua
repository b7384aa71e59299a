#!lua flags=allow-oom
-- Runs commands on keys of one partition as a transaction. Unlike MULTI, it runs on a full Redis, too.
--
-- KEYS are the keys of the commands. ARGV has for each command the number of its words, and the words.
--
-- returns the reply of each command; the first command that fails ends it
local out, at = {}, 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  out[#out + 1] = redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return out
