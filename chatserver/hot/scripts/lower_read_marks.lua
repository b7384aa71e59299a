#!lua flags=allow-oom
-- Lowers a user's read and received marks that are above a chat's newest entry: Redis lost the entries
-- that the user had read, and will assign their seqs again. A mark that has changed since the caller
-- read it stays.
--
-- key box      hash    user state: chats and read marks
-- arg chat_id  string
-- arg top      integer newest seq of the chat
-- arg read     integer read mark that the caller has found
-- arg received integer received mark that the caller has found
--
-- returns 1 if a mark was lowered, otherwise 0
local call = redis.call
local chat, top, lowered = ARGV[1], tonumber(ARGV[2]), 0
for i, field in ipairs({'r:' .. chat, 'd:' .. chat}) do
  local found = tonumber(ARGV[2 + i])
  if found > top and tonumber(call('HGET', KEYS[1], field) or 0) == found then
    call('HSET', KEYS[1], field, ARGV[2])
    lowered = 1
  end
end
return lowered
