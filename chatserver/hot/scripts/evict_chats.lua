#!lua flags=allow-oom
-- Evicts idle chats that are completely in the warm tier.
--
-- A chat is evicted only if it has no pending fan-out or notice, and its last entry is older than
-- `idle_s`. The next access loads it again. A chat that is not evicted is checked again later.
--
-- key idle         zset  chat to the time (s) of its last recorded activity
-- key undelivered  zset  chats with an unfinished fan-out
-- arg idle_s       integer
-- item key chat      hash    the chat's `seq`, `ts`, `gate` and other fields
-- item key members   hash
-- item key log       stream
-- item key over      hash    current state of changed entries
-- item key revs      zset    last changes of these entries
-- item key uncounted zset  seqs of entries that never count as unread
-- item key expiring  zset    seqs of messages that expire
-- item key turnover  hash    pending notices of joins and leaves
-- item arg chat_id   string
--
-- returns the number of evicted chats
local call = redis.call
local idle_s = tonumber(ARGV[1])
local now = tonumber(call('TIME')[1])
local evicted, a = 0, 2
for k = 3, #KEYS, 8 do
  local chat_id = ARGV[a]
  local head = call('HMGET', KEYS[k], 'seq', 'stored', 'ts', 'gate')
  local since = math.floor((tonumber(head[3]) or 0) / 1000000)
  local is_pending = head[4] and string.sub(head[4], -2) == ':p'
    or call('ZSCORE', KEYS[2], chat_id)
    or call('EXISTS', KEYS[k + 7]) == 1
  if head[1] and (is_pending or tonumber(head[1]) ~= tonumber(head[2] or 0)) then
    call('ZADD', KEYS[1], now, chat_id)
  elseif head[1] and since > now - idle_s then
    call('ZADD', KEYS[1], since, chat_id)
  else
    for i = 0, 6 do call('UNLINK', KEYS[k + i]) end
    call('ZREM', KEYS[1], chat_id)
    evicted = evicted + 1
  end
  a = a + 1
end
return evicted
