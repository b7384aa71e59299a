#!lua flags=allow-oom
-- Appends one event that is not a message (a read mark, a new chat) to inboxes.
--
-- key where      hash     user to gateways, comma-separated
-- arg inbox_max  integer  events kept per inbox
-- arg chat_id    string
-- arg body       bytes    part of the event frame that all inboxes share
-- arg is_listed  string   "1": the event adds the chat to chat lists; skip users who have it listed
-- arg mark       string   field of the user state with the highest `level` sent to the user; empty:
--                         append the event without comparing levels
-- arg level      integer  chat version or sum of read marks that the event reports; skip users with
--                         the same or a higher level
-- item key box    hash    user state: chats and read marks
-- item key inbox  stream  entry id "0-<seq>", field "!"
-- item arg user   string
--
-- returns a flat list; for each item the number of appended events, newest inbox seq and gateways
local call, format = redis.call, string.format
local inbox_max, chat_id = tonumber(ARGV[1]), ARGV[2]
local mark, level = ARGV[5], tonumber(ARGV[6])
local time = call('TIME')
local now = format('%.0f', time[1] * 1000000 + time[2])
local out, n, a = {}, 0, 7
for k = 2, #KEYS, 2 do
  local user = ARGV[a]
  local box = call('HMGET', KEYS[k], 'c:' .. chat_id, mark)
  local appended, seq = 0, 0
  local is_news = mark == '' or level > (tonumber(box[2]) or 0)
  if is_news and (ARGV[4] == '' or not box[1]) then
    appended, seq = 1, tonumber(string.sub(call('XADD', KEYS[k + 1], '0-*', '!', ARGV[3]), 3))
    if mark ~= '' then call('HSET', KEYS[k], mark, ARGV[6]) end
    if ARGV[4] == '1' then call('HSET', KEYS[k], 'c:' .. chat_id, now) end
    if seq > inbox_max then
      call('XTRIM', KEYS[k + 1], 'MINID', format('0-%d', seq - inbox_max + 1))
    end
  end
  if appended == 0 then
    -- The caller may notify the gateways again: the previous call may not have.
    local newest = call('XREVRANGE', KEYS[k + 1], '+', '-', 'COUNT', 1)[1]
    seq = newest and tonumber(string.sub(newest[1], 3)) or 0
  end
  out[n + 1], out[n + 2], out[n + 3] = appended, seq, call('HGET', KEYS[1], user) or ''
  n = n + 3
  a = a + 1
end
return out
