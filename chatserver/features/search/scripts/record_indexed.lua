#!lua flags=allow-oom
-- Records the position of the search indexer in a backlog; later entries are kept for the indexer.
--
-- key lease       hash    owner, token
-- key checkpoint  hash    id: last persisted entry; indexed, indexed_ms: last entry indexed, and
--                         when; told: last entry scanned for pushes
-- key backlog     stream  entries that are not persisted, scanned or indexed yet
-- arg token       integer fencing token of the caller
-- arg id          string  last entry in the index; empty if the index is new
--
-- returns {status, id of the last persisted entry}; status 0: the caller no longer holds the lease,
-- 1: recorded, 2: entries after `id` may have been trimmed, so the second value was recorded
local call = redis.call
local function parse(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return {tonumber(ms), tonumber(n)}
end
local function is_before(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
end

local done, told, indexed = unpack(call('HMGET', KEYS[2], 'id', 'told', 'indexed'))
done = done or '0-0'
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return {0, done} end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_complete = ARGV[2] ~= '' and indexed and not is_before(parse(ARGV[2]), parse(indexed))
local place = is_complete and ARGV[2] or done
call('HSET', KEYS[2], 'indexed', place, 'indexed_ms', string.format('%.0f', now))
local kept = parse(place)
if is_before(parse(done), kept) then kept = parse(done) end
if told and is_before(parse(told), kept) then kept = parse(told) end
call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-%d', kept[1], kept[2] + 1))
return {is_complete and 1 or 2, done}
