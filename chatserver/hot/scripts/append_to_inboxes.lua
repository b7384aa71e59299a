#!lua flags=allow-oom
-- Appends a chat's newest entries to inboxes, except those that an inbox already has. Idempotent.
--
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
-- returns a flat list; for each item the number of appended messages, the newest inbox seq and the
-- gateways
local call, format = redis.call, string.format
local inbox_max = tonumber(ARGV[1])
local ENTRY_MAX = 16 -- messages per stream entry; trimming removes whole entries
local out, n, a = {}, 0, 2
for k = 2, #KEYS, 2 do
  local user, chat_id, upto = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 3])
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
  local appended, inbox_seq = math.max(upto - seq, 0), 0
  if appended > 0 then
    -- Redis numbers the first message, so the numbers of the others are known.
    seq = seq + 1
    local id = call('XADD', KEYS[k + 1], '0-*', chat_id, format('%d', seq))
    inbox_seq = tonumber(string.sub(id, 3))
    while seq < upto do
      local first = seq + 1
      seq = math.min(seq + ENTRY_MAX, upto)
      inbox_seq = inbox_seq + seq - first + 1
      local value = first == seq and format('%d', seq) or format('%d-%d', first, seq)
      call('XADD', KEYS[k + 1], format('0-%d', inbox_seq), chat_id, value)
    end
    call('HSET', KEYS[k], 't:' .. chat_id, format('%d %s', upto, ARGV[a + 4]))
    -- The chat may be missing from the user's list, if its creation failed before the user was
    -- notified.
    if not box[2] then call('HSET', KEYS[k], 'c:' .. chat_id, '0') end
    if inbox_seq > inbox_max then
      call('XTRIM', KEYS[k + 1], 'MINID', format('0-%d', inbox_seq - inbox_max + 1))
    end
  end
  if appended == 0 then
    -- The caller notifies the gateways again: the previous call may not have.
    local newest = call('XREVRANGE', KEYS[k + 1], '+', '-', 'COUNT', 1)[1]
    inbox_seq = newest and tonumber(string.sub(newest[1], 3)) or 0
  end
  out[n + 1], out[n + 2], out[n + 3] = appended, inbox_seq, call('HGET', KEYS[1], user) or ''
  n = n + 3
  a = a + 5
end
return out
