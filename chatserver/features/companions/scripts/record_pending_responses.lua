#!lua flags=allow-oom
-- Records companion sessions that have a message to respond to or a changed message, and the last
-- backlog entry scanned for them.
--
-- The response worker scans the backlog, and so does the persist worker before it trims it. The
-- first to scan an entry moves `heard`; entries up to `heard` are not recorded again.
--
-- key checkpoint  hash    heard: last entry scanned
-- key asked       zset    companion session to the time of its next check (ms)
-- arg upto        string  last backlog entry scanned
-- item key asking hash    pending AI response of a companion session
-- item arg chat   string
-- item arg id     string  backlog entry with the message
-- item arg newest integer message to respond to, or 0
-- item arg changed integer message that was changed or deleted, or 0
--
-- returns the number of items that were new
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
    -- With LT, a session that waits for a retry is checked now; an earlier time is kept.
    call('ZADD', KEYS[2], 'LT', now, ARGV[a])
    count = count + 1
  end
  k = k + 1
end
if is_after(ARGV[1], heard) then call('HSET', KEYS[1], 'heard', ARGV[1]) end
return count
