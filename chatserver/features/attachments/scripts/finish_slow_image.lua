#!lua flags=allow-oom
-- Removes an image from the queue of slow images.
--
-- key slow    zset    image to its turn
-- key held    zset    image that was claimed to the time it may be claimed again (ms)
-- key images  hash    image to attempts and owner
-- key turns   hash    user to the turn of the user's last image; `*`: the current turn
-- arg file    string
--
-- returns 1 if it was in the queue
local call = redis.call
local is_removed = call('HDEL', KEYS[3], ARGV[1])
call('ZREM', KEYS[1], ARGV[1])
call('ZREM', KEYS[2], ARGV[1])
if call('HLEN', KEYS[3]) == 0 then call('DEL', KEYS[4]) end
return is_removed
