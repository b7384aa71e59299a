#!lua flags=allow-oom
-- Claims the slow image with the earliest turn. Images whose claim or backoff has ended get a new
-- turn first, behind the images of other users.
--
-- key slow      zset    image to its turn
-- key held      zset    image that was claimed to the time it may be claimed again (ms)
-- key images    hash    image to attempts and owner
-- key turns     hash    user to the turn of the user's last image; `*`: the current turn
-- arg lease_ms  integer time for which other callers cannot claim the image
--
-- returns {image, attempts with this one}; nothing if no image is due
local call = redis.call
local slow, held, images, turns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local due = call('ZRANGEBYSCORE', held, '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, 100)
for _, file in ipairs(due) do
  call('ZREM', held, file)
  local owner = string.match(call('HGET', images, file) or '', '^%d+ (.*)$')
  if owner then
    local now, last = unpack(call('HMGET', turns, '*', owner))
    local turn = math.max(tonumber(now or 0), tonumber(last or 0) + 1)
    call('ZADD', slow, turn, file)
    call('HSET', turns, owner, turn)
  end
end
local first = call('ZPOPMIN', slow)
local file = first[1]
if not file then return {} end
local attempts, owner = string.match(call('HGET', images, file) or '0 ', '^(%d+) (.*)$')
attempts = tonumber(attempts) + 1
call('HSET', images, file, attempts .. ' ' .. owner)
call('HSET', turns, '*', first[2])
call('ZADD', held, string.format('%.0f', now_ms + tonumber(ARGV[1])), file)
return {file, attempts}
