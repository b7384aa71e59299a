#!lua flags=allow-oom
-- Fills a user's box from the directory, once per epoch. Marks that the hot tier has are kept.
--
-- key box     hash    chats and marks of a user
-- key large   hash    large chat to "inbox seq:since"
-- key epoch   hash    `epoch`: the life of the hot tier that this Redis knows of
-- arg epoch   string  the current life of the hot tier
-- item arg chat_id  string
-- item arg read     integer
-- item arg received integer
-- item arg since    integer a large chat: above it its entries are the user's; empty: it is none
-- item arg version  integer of the chat, when that was so
-- item arg chat_epoch string  the current life of the chat
--
-- returns 1 if it was filled now, 0 if it was known, 3 if this Redis is not in that epoch (any more):
-- nothing is to begin in an epoch that is over
local call = redis.call
if call('HGET', KEYS[3], 'epoch') ~= ARGV[1] then return 3 end
if call('HGET', KEYS[1], 'known') == ARGV[1] then return 0 end
for a = 2, #ARGV, 6 do
  local chat = ARGV[a]
  call('HSETNX', KEYS[1], 'c:' .. chat, '0')
  for mark, given in pairs({['r:'] = ARGV[a + 1], ['d:'] = ARGV[a + 2]}) do
    local had = tonumber(call('HGET', KEYS[1], mark .. chat) or 0)
    if tonumber(given) > had then call('HSET', KEYS[1], mark .. chat, given) end
  end
  local since, version, chat_epoch = ARGV[a + 3], tonumber(ARGV[a + 4]), ARGV[a + 5]
  local told, told_epoch = string.match(call('HGET', KEYS[1], 'l:' .. chat) or '0 ', '^(%d+) (.*)$')
  if told_epoch < chat_epoch then
    -- What turn.lua told in an earlier life of the chat is told again if it is not in the directory.
    local newest = string.match(call('HGET', KEYS[2], chat) or '', '^[^;]*')
    if since == '' then
      call('HDEL', KEYS[2], chat)
    elseif not string.match(newest, '^%d+:%d+$') then -- over, or not known
      call('HSET', KEYS[2], chat, '0:' .. since)
    end
    if told_epoch ~= '' then call('HSET', KEYS[1], 'l:' .. chat, '0 ' .. chat_epoch) end
  elseif since ~= '' and version >= tonumber(told) then
    -- what the user was told since then is newer
    call('HSETNX', KEYS[2], chat, '0:' .. since)
  end
end
call('HSET', KEYS[1], 'known', ARGV[1])
return 1
