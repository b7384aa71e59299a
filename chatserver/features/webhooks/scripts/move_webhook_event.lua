#!lua flags=allow-oom
-- Moves an undelivered webhook event from the stream to the retry set or the dead letters.
--
-- key hooks       stream  events to deliver
-- key hooks_late  zset    event to time of its retry (ms)
-- key hooks_dead  stream  dead letters
-- arg entry       string  stream entry of the event
-- arg attempts    integer number of attempts
-- arg event       bytes   its JSON
-- arg packed      bytes   attempts and event in the format of `hooks_late`
-- arg due_ms      integer time of the retry; 0: move it to the dead letters
-- arg why         string  reason for the dead letter
-- arg dead_max    integer number of dead letters kept
--
-- returns 1 if it was moved, 0 if it was missing: another process has delivered or erased it
local call = redis.call
if call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[5] ~= '0' then
  call('ZADD', KEYS[2], ARGV[5], ARGV[4])
else
  call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', 'n', ARGV[2], 'why', ARGV[6], 'e', ARGV[3])
end
return 1
