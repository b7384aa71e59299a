#!lua flags=allow-oom
-- Adds an image to the queue of slow images, unless it is already there.
--
-- key slow        zset    image to its turn
-- key held        zset    image that was claimed to the time it may be claimed again (ms)
-- key images      hash    image to attempts and owner
-- key turns       hash    user to the turn of the user's last image; `*`: the current turn
-- arg file        string
-- arg owner       string
-- arg images_max  integer
--
-- returns 1 if it was added, 0 if it was already in the queue
local call = redis.call
local slow, images, turns = KEYS[1], KEYS[3], KEYS[4]
local file, owner, images_max = ARGV[1], ARGV[2], tonumber(ARGV[3])
if call('HSETNX', images, file, '0 ' .. owner) == 0 then return 0 end
if call('HLEN', turns) > 2 * images_max then call('DEL', turns) end
local now, last = unpack(call('HMGET', turns, '*', owner))
local turn = math.max(tonumber(now or 0), tonumber(last or 0) + 1)
call('ZADD', slow, turn, file)
call('HSET', turns, owner, turn)
if call('HLEN', images) > images_max then
  local latest = call('ZPOPMAX', slow)
  call('HDEL', images, latest[1])
end
return 1
