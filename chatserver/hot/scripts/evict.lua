#!lua flags=allow-oom
-- Lets chats leave the hot tier that nothing has happened in for long and that the warm tier has.
--
-- A chat goes only if, at this very moment, all of it is persisted, nothing of it is on its way to
-- an inbox or a member, and its last entry is old enough. What comes next finds it closed and loads
-- it. What must stay is listed again, for when it may be worth another look.
--
-- key idle         zset  chat to the second since when it may be idle
-- key undelivered  zset  chats with an unfinished fan-out
-- arg idle_s       integer
-- item key chat      hash    head of the chat
-- item key members   hash
-- item key log       stream
-- item key over      hash    entries as they are now
-- item key revs      zset    what changed them
-- item key asides    zset    seqs of entries that never count as unread
-- item key expiring  zset    seqs of messages that expire
-- item key turnover  hash    members who have to be told that they came or went
-- item arg chat_id   string
--
-- returns how many left
local call = redis.call
local idle_s = tonumber(ARGV[1])
local now = tonumber(call('TIME')[1])
local gone, a = 0, 2
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
    gone = gone + 1
  end
  a = a + 1
end
return gone
