#!lua flags=allow-oom
-- Adds to Redis the messages that a user deleted for themselves, as stored in the `directory`
-- table. A negative number -n hides all messages up to seq n, and replaces their seqs. Of several
-- negative numbers, only the lowest is kept.
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
  local known, seqs, upto = {}, {}, 0
  for seq in string.gmatch((list or '') .. ',' .. stored, '%-?%d+') do
    local number = tonumber(seq)
    if -number > upto then upto = -number end
    if number > 0 and not known[seq] then
      known[seq] = true
      seqs[#seqs + 1] = seq
    end
  end
  local kept = {}
  if upto > 0 then kept[1] = string.format('-%d', upto) end
  for _, seq in ipairs(seqs) do
    if tonumber(seq) > upto then kept[#kept + 1] = seq end
  end
  local merged = table.concat(kept, ',')
  if merged ~= list then
    call('HSET', KEYS[1], chat, merged)
    changed = changed + 1
  end
end
return changed
