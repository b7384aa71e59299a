#!lua flags=allow-oom
-- Moves the checkpoint of a backlog, and trims persisted entries that the other readers (push scan,
-- search indexer) do not need; only for the holder of the lease, in the epoch in which it read the
-- entries. Otherwise, chats that were loaded meanwhile would never learn that these are stored.
--
-- key lease       hash    owner, token
-- key epoch       hash    epoch
-- key checkpoint  hash    id of the last persisted entry; told, told_ms: last entry scanned for
--                         pushes, and when; indexed, indexed_ms: last entry in the search index,
--                         and when; removed if the indexer falls behind
-- key backlog     stream  entries that are not persisted yet
-- key progress    hash    chat to the seq up to which it is persisted beyond the checkpoint
-- arg token       integer fencing token of the caller
-- arg epoch       string
-- arg id          string  last entry that is persisted
-- arg next        string  id after `id`: first entry to keep, unless a reader needs earlier ones
--
-- returns 1, or 0 if the caller no longer holds the lease, or the epoch has ended
local call = redis.call
local LATE_MS = 60000 -- maximum delay of the scan for pushes, and of the search indexer

local function parse(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return {tonumber(ms), tonumber(n)}
end
local function is_before(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

-- returns the first entry to keep for a reader (push scan or search indexer) that has read up to
-- entry `reader`. Keeps at most LATE_MS of entries, and none if the reader has not reported for
-- LATE_MS.
local function first_for(reader, reader_ms, now)
  local done, place = parse(ARGV[3]), parse(reader)
  if not is_before(place, done) or now - tonumber(reader_ms) > LATE_MS then
    return parse(ARGV[4])
  end
  if place[1] < done[1] - LATE_MS then return {done[1] - LATE_MS, 0} end
  return {place[1], place[2] + 1}
end

-- returns the first entry to keep for all readers
local function first_kept()
  local told, told_ms, indexed, indexed_ms =
    unpack(call('HMGET', KEYS[3], 'told', 'told_ms', 'indexed', 'indexed_ms'))
  if not told and not indexed then return ARGV[4] end
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local kept = parse(ARGV[4])
  if told then
    local first = first_for(told, told_ms, now)
    if is_before(first, kept) then kept = first end
  end
  if indexed then
    local first = first_for(indexed, indexed_ms, now)
    if is_before(first, kept) then kept = first end
    -- Entries that the indexer has not read will be trimmed. Delete its position, so that it reads
    -- the chats themselves instead.
    local upto = string.format('(%.0f-%d', kept[1], kept[2])
    if is_before(parse(indexed), kept)
      and #call('XRANGE', KEYS[4], '(' .. indexed, upto, 'COUNT', 1) > 0 then
      call('HDEL', KEYS[3], 'indexed', 'indexed_ms')
    end
  end
  return string.format('%.0f-%d', kept[1], kept[2])
end

-- returns true if certainly no entry after the new checkpoint is persisted
local function is_caught_up()
  local ahead = call('HGET', KEYS[3], 'ahead')
  if not ahead then return true end
  local ms, n = string.match(ARGV[3], '^(%d+)-(%d+)$')
  local ahead_ms, ahead_n = string.match(ahead, '^(%d+)-(%d+)$')
  ms, n, ahead_ms, ahead_n = tonumber(ms), tonumber(n), tonumber(ahead_ms), tonumber(ahead_n)
  return ms > ahead_ms or (ms == ahead_ms and n >= ahead_n)
end

if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
if call('HGET', KEYS[2], 'epoch') ~= ARGV[2] then return 0 end
if call('HGET', KEYS[3], 'id') == ARGV[3] then return 1 end
call('HSET', KEYS[3], 'id', ARGV[3], 'token', ARGV[1])
call('XTRIM', KEYS[4], 'MINID', first_kept())
if is_caught_up() then call('DEL', KEYS[5]) end
return 1
