#!lua flags=allow-oom
-- Notes which sessions with companions have a message to answer, or one that was changed, and how
-- far the backlog was looked through for that.
--
-- The worker that answers looks, and so does the one that persists, before it trims: whoever comes
-- first moves `heard`, and what lies up to there is not noted a second time.
--
-- key checkpoint  hash    heard: last entry that was looked at
-- key asked       zset    session to when it is to be looked at (ms)
-- arg upto        string  last entry of the backlog that was looked at; all before it were, too
-- item key asking hash    what a session waits for
-- item arg chat   string
-- item arg id     string  entry of the backlog that it was found in
-- item arg newest integer message to answer, or 0
-- item arg changed integer message that was changed or deleted, or 0
--
-- returns how many were news
local call = redis.call

local function is_after(one, other)
  local ms, n = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_n = string.match(other, '^(%d+)-(%d+)$')
  ms, n, other_ms, other_n = tonumber(ms), tonumber(n), tonumber(other_ms), tonumber(other_n)
  return ms > other_ms or (ms == other_ms and n > other_n)
end

local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local heard = call('HGET', KEYS[1], 'heard') or '0-0'
local count, k = 0, 3
for a = 2, #ARGV, 4 do
  if is_after(ARGV[a + 1], heard) then
    local known = call('HMGET', KEYS[k], 'newest', 'changed')
    if tonumber(ARGV[a + 2]) > tonumber(known[1] or 0) then
      call('HSET', KEYS[k], 'newest', ARGV[a + 2])
    end
    local changed = tonumber(ARGV[a + 3])
    if changed > 0 and changed < tonumber(known[2] or 2 ^ 53) then
      call('HSET', KEYS[k], 'changed', ARGV[a + 3])
    end
    -- LT: one that waits to be tried again is looked at now
    call('ZADD', KEYS[2], 'LT', now, ARGV[a])
    count = count + 1
  end
  k = k + 1
end
if is_after(ARGV[1], heard) then call('HSET', KEYS[1], 'heard', ARGV[1]) end
return count
