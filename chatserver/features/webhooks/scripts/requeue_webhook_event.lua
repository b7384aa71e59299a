#!lua flags=allow-oom
-- Moves a webhook event whose retry is due from the retry set to the delivery stream.
--
-- key hooks       stream  events to deliver
-- key hooks_late  zset    event to time of its retry (ms)
-- arg packed      bytes   attempts and event in the format of `hooks_late`
-- arg attempts    integer number of attempts
-- arg event       bytes   its JSON
--
-- returns 1 if it was moved, 0 if it was missing: another process has moved or erased it
local call = redis.call
if call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
call('XADD', KEYS[1], '*', 'n', ARGV[2], 'e', ARGV[3])
return 1
