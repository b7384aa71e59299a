#!lua flags=no-writes
-- Reads how far the backlog of a partition is persisted.
--
-- key epoch       hash    `epoch`: epoch that this Redis holds
-- key checkpoint  hash    `id` of the last persisted entry
-- key backlog     stream  entries that are not persisted yet
--
-- returns {epoch, id of the last persisted entry, id of the newest entry}; "" or "0-0" if missing
local call = redis.call
local newest = call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
return {
  call('HGET', KEYS[1], 'epoch') or '',
  call('HGET', KEYS[2], 'id') or '0-0',
  newest and newest[1] or '0-0',
}
