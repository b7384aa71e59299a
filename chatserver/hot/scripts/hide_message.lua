#!lua flags=allow-oom
-- Hides a message from a user who deleted it for themselves. Appends this change to the backlog and
-- to the inbox of the user, whose other devices hide the message, too.
--
-- key hidden      hash    chat to hidden seqs, comma-separated; `!`: the backlog entry
--                         of the seq that was hidden last
-- key backlog     stream  entries that are not persisted yet
-- key checkpoint  hash    `id`: last persisted entry of the backlog
-- key where       hash    user to gateways, comma-separated
-- key inbox       stream  entry id "0-<seq>", field "!"
-- arg chat_id     string
-- arg user        string
-- arg seq         integer
-- arg hidden_max  integer per chat
-- arg backlog_max integer maximum number of entries in the backlog
-- arg inbox_max   integer events kept per inbox
-- arg body        bytes   the event, without its inbox seq
--
-- returns {code, newest inbox seq, gateways}; the code is
--   1 if the message is newly hidden
--   0 if it was already hidden
--   3 if it was already hidden and all hidden seqs are persisted
--   2 if the user has hidden `hidden_max` messages
--   6 if the backlog is full
local call, format = redis.call, string.format

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

local chat, user, seq = ARGV[1], ARGV[2], ARGV[3]
local gateways = call('HGET', KEYS[4], user) or ''
local list = call('HGET', KEYS[1], chat)
if list and string.find(',' .. list .. ',', ',' .. seq .. ',', 1, true) then
  local newest = call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1)[1]
  local inbox_seq = newest and tonumber(string.sub(newest[1], 3)) or 0
  return {is_persisted() and 3 or 0, inbox_seq, gateways}
end
local _, commas = string.gsub(list or '', ',', '')
if list and commas + 1 >= tonumber(ARGV[4]) then return {2} end
if call('XLEN', KEYS[2]) >= tonumber(ARGV[5]) then return {6} end
call('HSET', KEYS[1], chat, list and list .. ',' .. seq or seq)
call('HSET', KEYS[1], '!', call('XADD', KEYS[2], '*', 'c', chat, 'u', user, 'x', seq))
local inbox_seq = tonumber(string.sub(call('XADD', KEYS[5], '0-*', '!', ARGV[7]), 3))
local inbox_max = tonumber(ARGV[6])
if inbox_seq > inbox_max then
  call('XTRIM', KEYS[5], 'MINID', format('0-%d', inbox_seq - inbox_max + 1))
end
return {1, inbox_seq, gateways}
