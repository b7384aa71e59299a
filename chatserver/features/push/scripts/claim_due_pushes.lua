#!lua flags=allow-oom
-- Claims chats whose push notifications are due. They become due again if they are not finished
-- within `hold_ms`.
--
-- key lease    hash    owner, token
-- key due      zset    chat to the time its pushes are due (ms). A claimed chat has the end of its
--                      claim minus 0.5 ms; waiting chats have whole milliseconds
-- key since    hash    chat to the first seq that needs pushes
-- arg token    integer fencing token of the caller
-- arg hold_ms  integer time until they are due again
-- arg limit    integer
--
-- returns {chat, first seq, new time} for each; nothing if the caller no longer holds the lease
local call = redis.call
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return {} end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out, n, again = {}, 0, string.format('%.1f', now + tonumber(ARGV[2]) - 0.5)
local now_ms = string.format('%.0f', now)
for _, chat in ipairs(call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms, 'LIMIT', 0, ARGV[3])) do
  call('ZADD', KEYS[2], again, chat)
  out[n + 1], out[n + 2], out[n + 3] = chat, call('HGET', KEYS[3], chat) or '1', again
  n = n + 3
end
return out
