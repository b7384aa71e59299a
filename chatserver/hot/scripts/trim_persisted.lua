#!lua flags=allow-oom
-- Records up to which seq each chat is persisted. Trims their logs and overlays, but never entries
-- after this seq. Ignores a chat that is not in Redis, or whose newest seq is lower: `upto` is then
-- from an earlier epoch.
--
-- An entry is removed from the overlay when the log no longer has its last change. The warm tier
-- then has the entry with this change applied.
--
-- arg log_max  integer  entries kept per log
-- item key chat  hash    the chat's `seq`, `ts`, `gate` and other fields
-- item key log   stream  committed entries
-- item key over  hash    seq to current state of the entry
-- item key revs  zset    seq of an entry in `over`, score: seq of its last change
-- item arg upto  integer
-- item arg dead  string   seqs of dead letters up to `upto`, separated by commas: they are not acked
--                         as stored; the chat keeps the newest 100 or so
--
-- returns the number of entries trimmed from the logs
local call = redis.call
local log_max, trimmed, a = tonumber(ARGV[1]), 0, 2
for k = 1, #KEYS, 4 do
  local upto = tonumber(ARGV[a])
  local seq = tonumber(call('HGET', KEYS[k], 'seq') or 0)
  if upto <= seq and upto > tonumber(call('HGET', KEYS[k], 'stored') or 0) then
    call('HSET', KEYS[k], 'stored', upto)
    if ARGV[a + 1] ~= '' then
      local dead = (call('HGET', KEYS[k], 'dead') or '') .. ',' .. ARGV[a + 1]
      -- The text before the first comma is empty, or the rest of a number that was cut.
      dead = string.gsub(string.sub(dead, -1000), '^[^,]*,', ',', 1)
      call('HSET', KEYS[k], 'dead', dead)
    end
  end
  local first = math.min(upto, seq - log_max) + 1
  if first > 1 then
    trimmed = trimmed + call('XTRIM', KEYS[k + 1], 'MINID', first .. '-0')
    while true do
      local done = call('ZRANGEBYSCORE', KEYS[k + 3], '-inf', first - 1, 'LIMIT', 0, 1000)
      if #done == 0 then break end
      call('HDEL', KEYS[k + 2], unpack(done))
      call('ZREM', KEYS[k + 3], unpack(done))
    end
  end
  a = a + 2
end
return trimmed
