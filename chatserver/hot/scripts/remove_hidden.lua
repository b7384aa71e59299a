#!lua flags=allow-oom
-- Removes seqs from those that a user has hidden in a chat: Redis lost these messages, and will
-- assign their seqs again.
--
-- key hidden   hash    chat to the seqs hidden from the user, comma-separated; see hide_message.lua
-- arg chat_id  string
-- arg seqs     string  comma-separated
--
-- returns the number of seqs removed
local call = redis.call
local list, lost, kept, removed = call('HGET', KEYS[1], ARGV[1]), ',' .. ARGV[2] .. ',', {}, 0
for seq in string.gmatch(list or '', '[^,]+') do
  if string.find(lost, ',' .. seq .. ',', 1, true) then
    removed = removed + 1
  else
    kept[#kept + 1] = seq
  end
end
if removed == 0 then return 0 end
if #kept == 0 then
  call('HDEL', KEYS[1], ARGV[1])
else
  call('HSET', KEYS[1], ARGV[1], table.concat(kept, ','))
end
return removed
