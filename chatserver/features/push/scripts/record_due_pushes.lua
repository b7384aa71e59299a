#!lua flags=allow-oom
-- Records chats whose new messages may need push notifications, and the last backlog entry scanned
-- for them. Trims entries that are persisted, scanned and indexed.
--
-- key lease       hash    owner, token
-- key checkpoint  hash    id: last persisted entry; told, told_ms: last entry scanned, and when;
--                         indexed: last entry in the search index
-- key backlog     stream  entries that are not persisted, scanned or indexed yet
-- key due         zset    chat to the time its pushes are due (ms); see claim_due_pushes.lua
-- key since       hash    chat to the first seq that needs pushes
-- arg token       integer fencing token of the caller
-- arg id          string  last entry scanned
-- arg delay_ms    integer
-- item arg chat   string
-- item arg seq    integer first new message of the chat
--
-- returns 1, or 0 if the caller no longer holds the lease
local call, format = redis.call, string.format
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = format('%.0f', now + tonumber(ARGV[3]))
for a = 4, #ARGV, 2 do
  -- A waiting chat keeps its earlier time. A claimed chat gets the new time, even if its claim ends
  -- earlier, so that it stays due when the claim is finished.
  local had = tonumber(call('ZSCORE', KEYS[4], ARGV[a]) or 0)
  local is_claimed = had % 1 ~= 0 -- see claim_due_pushes.lua
  if is_claimed then
    call('ZADD', KEYS[4], due, ARGV[a])
  else
    call('ZADD', KEYS[4], 'LT', due, ARGV[a])
  end
  call('HSETNX', KEYS[5], ARGV[a], ARGV[a + 1])
end
call('HSET', KEYS[2], 'told', ARGV[2], 'told_ms', format('%.0f', now))
local done, indexed = unpack(call('HMGET', KEYS[2], 'id', 'indexed'))
if done then
  local ms, n = string.match(ARGV[2], '^(%d+)-(%d+)$')
  ms, n = tonumber(ms), tonumber(n)
  for _, other in ipairs({done, indexed or done}) do
    local other_ms, other_n = string.match(other, '^(%d+)-(%d+)$')
    other_ms, other_n = tonumber(other_ms), tonumber(other_n)
    if other_ms < ms or (other_ms == ms and other_n < n) then ms, n = other_ms, other_n end
  end
  call('XTRIM', KEYS[3], 'MINID', format('%.0f-%d', ms, n + 1))
end
return 1
