#!lua flags=allow-oom
-- Adds the messages that a user deleted for themselves, according to the directory. What the user deletes
-- after a loss of Redis can be here before.
--
-- key hidden   hash    chat to the seqs that the user does not see, comma separated; see hide.lua
-- item arg chat_id string
-- item arg seqs    string  comma separated
--
-- returns how many chats were changed
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
