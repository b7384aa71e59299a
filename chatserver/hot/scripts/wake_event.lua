#!lua flags=allow-oom
-- Puts an event of a webhook that is to be tried again back among those that wait, if it still is.
--
-- key hooks       stream  events that are to be told
-- key hooks_late  zset    events that are tried again later → when, ms
-- arg packed      bytes   attempts and event, as `hooks_late` has them
-- arg attempts    integer how often it was tried
-- arg event       bytes   its JSON
--
-- returns 1 if it waits now, 0 if it was not there: woken by another process, or erased, meanwhile
local call = redis.call
if call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
call('XADD', KEYS[1], '*', 'n', ARGV[2], 'e', ARGV[3])
return 1
