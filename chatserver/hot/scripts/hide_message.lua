#!lua flags=allow-oom
-- Hides a message from a user who deleted it for themselves, and appends this change to the
-- backlog.
--
-- key hidden      hash    chat to hidden seqs, comma-separated; `!`: the backlog entry
--                         of the seq that was hidden last
-- key backlog     stream  entries that are not persisted yet
-- key checkpoint  hash    `waiting`: number of entries in the backlog; `id`: last persisted entry
-- arg chat_id     string
-- arg user        string
-- arg seq         integer
-- arg hidden_max  integer per chat
-- arg backlog_max integer maximum number of entries in the backlog
--
-- returns 1 if the message is newly hidden, 0 if it was already hidden, 3 if it was already hidden
-- and all hidden seqs are persisted, 2 if the user has hidden `hidden_max` messages, 6
-- if the backlog is full
local call = redis.call

local function parse(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

local function is_persisted()
  local last, done = call('HGET', KEYS[1], '!'), call('HGET', KEYS[3], 'id')
  if not last then return true end
  if not done then return false end
  local ms, number = parse(last)
  local done_ms, done_number = parse(done)
  return ms < done_ms or ms == done_ms and number <= done_number
end

local chat, seq = ARGV[1], ARGV[3]
local list = call('HGET', KEYS[1], chat)
if list and string.find(',' .. list .. ',', ',' .. seq .. ',', 1, true) then
  return is_persisted() and 3 or 0
end
local _, commas = string.gsub(list or '', ',', '')
if list and commas + 1 >= tonumber(ARGV[4]) then return 2 end
if tonumber(call('HGET', KEYS[3], 'waiting') or 0) >= tonumber(ARGV[5]) then return 6 end
call('HSET', KEYS[1], chat, list and list .. ',' .. seq or seq)
call('HSET', KEYS[1], '!', call('XADD', KEYS[2], '*', 'c', chat, 'u', ARGV[2], 'x', seq))
call('HINCRBY', KEYS[3], 'waiting', 1)
return 1
