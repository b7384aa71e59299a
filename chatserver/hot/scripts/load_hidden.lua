#!lua flags=allow-oom
-- Merges the messages that a user deleted for themselves, loaded from the `directory` table. Redis
-- may already have newer ones.
--
-- key hidden   hash    chat to the seqs hidden from the user, comma-separated; see hide_message.lua
-- item arg chat_id string
-- item arg seqs    string  comma-separated
--
-- returns the number of chats changed
local call = redis.call
local changed = 0
for a = 1, #ARGV, 2 do
  local chat, stored = ARGV[a], ARGV[a + 1]
  local list = call('HGET', KEYS[1], chat)
  local merged = list or stored
  if list then
    for seq in string.gmatch(stored, '%d+') do
      if not string.find(',' .. list .. ',', ',' .. seq .. ',', 1, true) then
        merged = merged .. ',' .. seq
      end
    end
  end
  if merged ~= list then
    call('HSET', KEYS[1], chat, merged)
    changed = changed + 1
  end
end
return changed
