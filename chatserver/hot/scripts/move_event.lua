#!lua flags=allow-oom
-- Takes an event of a webhook that could not be told on to where it waits next, if it is still here.
--
-- key hooks       stream  events that are to be told
-- key hooks_late  zset    events that are tried again later → when, ms
-- key hooks_dead  stream  events that were given up
-- arg entry       string  where the event waits
-- arg attempts    integer how often it was tried
-- arg event       bytes   its JSON
-- arg packed      bytes   attempts and event, as `hooks_late` has them
-- arg due_ms      integer when it is tried again; 0: it is given up
-- arg why         string  it is given up for
-- arg dead_max    integer dead letters that are kept
--
-- returns 1 if it was moved, 0 if it was not there: told by another process, or erased, meanwhile
local call = redis.call
if call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[5] ~= '0' then
  call('ZADD', KEYS[2], ARGV[5], ARGV[4])
else
  call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', 'n', ARGV[2], 'why', ARGV[6], 'e', ARGV[3])
end
return 1
