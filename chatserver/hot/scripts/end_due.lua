-- Ends a chat that `take_due` gave, unless there was a message since.
--
-- key due    zset    chat to when to tell (ms)
-- key since  hash    chat to the first seq to tell of
-- arg chat   string
-- arg time   integer as `take_due` answered it
-- arg upto   integer members were told of what there is up to this seq
--
-- returns 1 if the chat is done, 0 if it comes up again
local call = redis.call
if tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or -1) == tonumber(ARGV[2]) then
  call('ZREM', KEYS[1], ARGV[1])
  call('HDEL', KEYS[2], ARGV[1])
  return 1
end
if tonumber(call('HGET', KEYS[2], ARGV[1]) or 0) <= tonumber(ARGV[3]) then
  call('HSET', KEYS[2], ARGV[1], string.format('%d', tonumber(ARGV[3]) + 1))
end
return 0
