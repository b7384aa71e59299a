#!lua flags=allow-oom
-- Moves the checkpoint of a backlog and trims entries before it; only for the holder of the lease.
--
-- key lease       hash    owner, token
-- key checkpoint  hash    id of the last persisted entry; `waiting`: entries in the backlog; told,
--                         told_ms: last entry scanned for pushes, and when
-- key backlog     stream  entries that are not persisted yet
-- key progress    hash    chat to the seq up to which it is persisted beyond the checkpoint
-- arg token       integer fencing token of the caller
-- arg id          string  last entry that is persisted
-- arg next        string  the next id, which is the first that is kept
-- arg count       integer number of messages and marks since the previous checkpoint
--
-- returns 1, or 0 if the caller no longer holds the lease
local call = redis.call
local LATE_MS = 60000 -- maximum delay of the scan for pushes

-- the first entry to keep: the scan for pushes may not have reached persisted entries yet
local function first_kept()
  local ms, n = string.match(ARGV[2], '^(%d+)-(%d+)$')
  local told, told_ms = unpack(call('HMGET', KEYS[2], 'told', 'told_ms'))
  if not told then return ARGV[3] end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local old_ms, old_n = string.match(told, '^(%d+)-(%d+)$')
  ms, n, old_ms, old_n = tonumber(ms), tonumber(n), tonumber(old_ms), tonumber(old_n)
  local is_behind = old_ms < ms or (old_ms == ms and old_n < n)
  if not is_behind or now - tonumber(told_ms) > LATE_MS then return ARGV[3] end
  if old_ms < ms - LATE_MS then return string.format('%.0f-0', ms - LATE_MS) end
  return string.format('%.0f-%d', old_ms, old_n + 1)
end

-- whether nothing is persisted beyond the new checkpoint
local function is_caught_up()
  local ahead = call('HGET', KEYS[2], 'ahead')
  if not ahead then return true end
  local ms, n = string.match(ARGV[2], '^(%d+)-(%d+)$')
  local ahead_ms, ahead_n = string.match(ahead, '^(%d+)-(%d+)$')
  ms, n, ahead_ms, ahead_n = tonumber(ms), tonumber(n), tonumber(ahead_ms), tonumber(ahead_n)
  return ms > ahead_ms or (ms == ahead_ms and n >= ahead_n)
end

if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
if call('HGET', KEYS[2], 'id') == ARGV[2] then return 1 end
call('HSET', KEYS[2], 'id', ARGV[2], 'token', ARGV[1])
call('XTRIM', KEYS[3], 'MINID', first_kept())
if is_caught_up() then call('DEL', KEYS[4]) end
if call('HINCRBY', KEYS[2], 'waiting', -tonumber(ARGV[4])) < 0 then
  call('HSET', KEYS[2], 'waiting', 0)
end
return 1
