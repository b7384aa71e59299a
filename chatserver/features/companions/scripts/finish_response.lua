#!lua flags=allow-oom
-- Finishes the AI response started by `start_response`. If there are newer messages, schedules a
-- response to them.
--
-- key asking  hash    pending AI response: begun, newest, stop, changed (chat seqs); tries
-- key asked   zset    companion session to the time of its next check (ms)
-- arg chat    string
-- arg seq     integer message that was responded to, or 0
-- arg changed integer change that was handled, as returned by `start_response`
--
-- returns 1 if there is more to do, otherwise 0
local call = redis.call
local held = call('HMGET', KEYS[1], 'begun', 'newest', 'stop', 'changed')
for i = 1, 4 do held[i] = tonumber(held[i] or 0) end
local seq = tonumber(ARGV[2])
if held[1] > seq then return 1 end -- another process has continued
call('HDEL', KEYS[1], 'begun', 'tries')
if held[3] <= seq then call('HDEL', KEYS[1], 'stop') end
if held[4] == tonumber(ARGV[3]) then
  call('HDEL', KEYS[1], 'changed')
  held[4] = 0
end
if held[2] > seq or held[4] > 0 then
  local time = call('TIME')
  call('ZADD', KEYS[2], string.format('%.0f', time[1] * 1000), ARGV[1])
  return 1
end
call('DEL', KEYS[1])
call('ZREM', KEYS[2], ARGV[1])
return 0
