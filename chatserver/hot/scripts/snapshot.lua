#!lua flags=no-writes
-- Runs commands that read, on keys of one partition, at one moment. Unlike within MULTI, a full Redis
-- runs them, too.
--
-- KEYS are the keys of the commands. ARGV has for each command the number of its words, and the words.
--
-- returns the reply of each command
local out, at = {}, 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  out[#out + 1] = redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return out
