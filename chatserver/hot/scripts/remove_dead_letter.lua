#!lua flags=allow-oom
-- Removes a dead letter whose message the warm tier now has, so that the message counts as stored.
--
-- key dead   stream  dead letters of the partition
-- key chat   hash    the chat's `dead` and other fields
-- arg entry  string  id of the dead letter
-- arg seq    integer seq of the message
--
-- returns the number of removed dead letters
local call = redis.call
local dead = call('HGET', KEYS[2], 'dead')
if dead then
  dead = string.gsub(',' .. dead .. ',', ',' .. ARGV[2] .. ',', ',')
  call('HSET', KEYS[2], 'dead', dead)
end
return call('XDEL', KEYS[1], ARGV[1])
