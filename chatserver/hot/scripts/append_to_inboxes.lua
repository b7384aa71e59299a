#!lua flags=allow-oom
-- Appends a chat's newest entries to inboxes, except those that an inbox already has. Idempotent.
--
-- key seqs       hash     user to newest inbox seq
-- key where      hash     user to gateways, comma-separated
-- arg inbox_max  integer  events kept per inbox
-- item key box     hash    user state: chats and read marks
-- item key inbox   stream  references to messages, see commit_messages.lua
-- item arg user    string
-- item arg chat_id string
-- item arg after   integer deliver only entries above this seq
-- item arg upto    integer newest seq of the chat
-- item arg epoch   string  epoch in which the chat assigned these seqs
--
-- returns a flat list; for each item the number of appended messages, inbox seq and gateways
local call, format = redis.call, string.format
local inbox_max = tonumber(ARGV[1])
local ENTRY_MAX = 16 -- messages per stream entry; trimming removes whole entries
local out, n, a = {}, 0, 2
for k = 3, #KEYS, 2 do
  local user, chat_id, upto = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 3])
  local inbox_seq = tonumber(call('HGET', KEYS[1], user) or 0)
  -- Field "t:<chat>" has the last chat seq that this script delivered. commit_messages.lua does not
  -- update it. With `after`, the caller excludes the entries that commit_messages.lua delivered.
  local box = call('HMGET', KEYS[k], 't:' .. chat_id, 'c:' .. chat_id)
  -- A seq recorded in an earlier epoch is ignored: this epoch may assign the same seqs to other
  -- entries. If the recorded epoch is later, the caller is outdated, and nothing is delivered.
  local had, had_epoch = string.match(box[1] or '0 ', '^(%d+) (.*)$')
  if had_epoch > ARGV[a + 4] then
    upto = 0
  elseif had_epoch < ARGV[a + 4] then
    had = 0
  end
  local seq = math.max(tonumber(had), tonumber(ARGV[a + 2]))
  local appended = math.max(upto - seq, 0)
  while seq < upto do
    local messages = math.min(upto - seq, ENTRY_MAX)
    seq, inbox_seq = seq + messages, inbox_seq + messages
    call('XADD', KEYS[k + 1], format('%d-%d', inbox_seq, messages - 1), chat_id, format('%d', seq))
  end
  if appended > 0 then
    call('HSET', KEYS[1], user, format('%d', inbox_seq))
    call('HSET', KEYS[k], 't:' .. chat_id, format('%d %s', upto, ARGV[a + 4]))
    -- The chat may be missing from the user's list, if its creation failed before the user was
    -- notified.
    if not box[2] then call('HSET', KEYS[k], 'c:' .. chat_id, '0') end
    if inbox_seq > inbox_max then
      call('XTRIM', KEYS[k + 1], 'MINID', format('%d-0', inbox_seq - inbox_max + 1))
    end
  end
  out[n + 1], out[n + 2], out[n + 3] = appended, inbox_seq, call('HGET', KEYS[2], user) or ''
  n = n + 3
  a = a + 5
end
return out
