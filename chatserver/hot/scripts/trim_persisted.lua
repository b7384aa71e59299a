#!lua flags=allow-oom
-- Records up to which seq each chat is persisted. Trims their logs and overlays, but never entries
-- after this seq. Ignores a chat that is not in Redis, whose newest seq is lower, or that was loaded
-- in a later epoch: `upto` may then be the seq of an entry that Redis has lost.
--
-- Also removes refs that are older than `ref_ttl_s`. In a chat with many fields, each call scans a few
-- more than it got messages. When all are scanned, it pauses.
--
-- An entry is removed from the overlay when the log no longer has its last change. The warm tier
-- then has the entry with this change applied.
--
-- arg log_max  integer  entries kept per log
-- arg ref_ttl_s integer
-- arg epoch    string   epoch in which the caller read the entries from the backlog
-- item key chat  hash    the chat's `seq`, `ts`, `gate` and other fields, and its refs; `scan`: the
--                cursor, or "@" and the time (s) at which all fields were scanned
-- item key log   stream  committed entries
-- item key over  hash    seq to current state of the entry
-- item key revs  zset    seq of an entry in `over`, score: seq of its last change
-- item arg upto  integer
-- item arg dead  string   seqs of dead letters up to `upto`, separated by commas: they are not acked
--                         as stored; the chat keeps the newest 100 or so
--
-- returns the number of entries trimmed from the logs
local call = redis.call
local log_max, epoch, trimmed, a = tonumber(ARGV[1]), ARGV[3], 0, 4
local FIELDS_MIN, PAUSE_S = 40, 21600 -- fields of a chat whose refs are scanned; time between scans
local now_s = call('TIME')[1]
local oldest = (now_s - ARGV[2]) * 1000000

-- With a pause of six hours and four fields per new message, refs stay for at most 1.5 days or so, while
-- the chat gets messages.
local function remove_refs(key, messages, cursor)
  local count = math.max(20, 4 * math.min(messages, 250))
  local reply = call('HSCAN', key, cursor, 'MATCH', '#*', 'COUNT', count)
  local outdated = {}
  for i = 1, #reply[2], 2 do
    local _, ts = struct.unpack('>I5I7', reply[2][i + 1])
    if ts < oldest then outdated[#outdated + 1] = reply[2][i] end
  end
  if #outdated > 0 then call('HDEL', key, unpack(outdated)) end
  call('HSET', key, 'scan', reply[1] == '0' and '@' .. now_s or reply[1])
end

for k = 1, #KEYS, 4 do
  local upto = tonumber(ARGV[a])
  local head = call('HMGET', KEYS[k], 'seq', 'stored', 'scan', 'gate')
  local seq, stored = tonumber(head[1]) or 0, tonumber(head[2]) or 0
  -- Epochs sort by their start.
  if string.match(head[4] or '', '^[^:]*') > epoch then seq = 0 end
  if upto <= seq and upto > stored then
    call('HSET', KEYS[k], 'stored', upto)
    local cursor, scanned_s = head[3] or '0', string.match(head[3] or '', '^@(%d+)')
    if scanned_s then cursor = now_s - scanned_s >= PAUSE_S and '0' end
    if cursor and call('HLEN', KEYS[k]) > FIELDS_MIN then
      remove_refs(KEYS[k], upto - stored, cursor)
    end
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
