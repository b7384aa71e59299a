#!lua flags=allow-oom
-- Loads the state of a user from the `directory` table, once per epoch. Higher read and received
-- marks in Redis are kept.
--
-- key box     hash    user state: chats and read marks
-- key large   hash    large chat to "inbox seq:since"
-- key epoch   hash    `epoch`: epoch that this Redis holds
-- arg epoch   string  current epoch of the partition
-- item arg chat_id  string
-- item arg read     integer
-- item arg received integer
-- item arg since    integer large chat: the user reads entries above this seq from the chat's log;
--                           empty: the chat is not large
-- item arg version  integer version of the chat to which `since` applies
-- item arg chat_epoch string  current epoch of the chat's partition
--
-- returns 1 if the state is newly loaded, 0 if it was already loaded, 3 if this Redis has no epoch
-- or another epoch
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
  local had = call('HGET', KEYS[1], 'l:' .. chat) or '0 '
  local had_version, had_epoch = string.match(had, '^(%d+) (.*)$')
  if had_epoch < chat_epoch then
    -- Whether the chat is large, as recorded in an earlier epoch, may be outdated: use the
    -- `directory` table. If the table lacks the last change, members are notified again.
    local newest = string.match(call('HGET', KEYS[2], chat) or '', '^[^;]*')
    if since == '' then
      call('HDEL', KEYS[2], chat)
    elseif not string.match(newest, '^%d+:%d+$') then -- ended, or unknown
      call('HSET', KEYS[2], chat, '0:' .. since)
    end
    if had_epoch ~= '' then call('HSET', KEYS[1], 'l:' .. chat, '0 ' .. chat_epoch) end
  elseif since ~= '' and version >= tonumber(had_version) then
    -- HSETNX: if Redis has already recorded a large-chat period, it is newer than the table's.
    call('HSETNX', KEYS[2], chat, '0:' .. since)
  end
end
call('HSET', KEYS[1], 'known', ARGV[1])
return 1
