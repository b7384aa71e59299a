#!lua flags=allow-oom
-- Removes chats from the list of unfinished fan-outs, unless they have newer commits.
--
-- key undelivered  zset     chats with an unfinished fan-out
-- item key chat     hash    the chat's `seq`, `ts`, `gate` and other fields
-- item arg chat_id  string
-- item arg upto     integer seq up to which every inbox has the entries and every gateway was
--                           notified
--
-- returns the number of chats removed
local removed, a = 0, 1
for k = 2, #KEYS do
  local head = redis.call('HMGET', KEYS[k], 'seq', 'gate', 'done')
  local is_pending = head[2] and string.sub(head[2], -2) == ':p'
  if tonumber(head[1] or 0) <= tonumber(ARGV[a + 1]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[a])
    -- Nothing is pending: remove ":p", so that commits deliver to inboxes again.
    if is_pending then
      redis.call('HSET', KEYS[k], 'gate', string.sub(head[2], 1, -3))
    end
  elseif is_pending and tonumber(ARGV[a + 1]) > tonumber(head[3] or 0) then
    redis.call('HSET', KEYS[k], 'done', ARGV[a + 1])
  end
  a = a + 2
end
return removed
