#!lua flags=allow-oom
-- Notes how far chats are persisted beyond the checkpoint, for the holder of the lease only.
--
-- key lease       hash    owner, token
-- key progress    hash    chat to the seq up to which it is persisted; removed by `checkpoint`
-- arg token       integer fencing token of the caller
-- item arg chat   string
-- item arg upto   integer
--
-- returns 1, or 0 if the lease is no longer the caller's
local call = redis.call
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
for a = 2, #ARGV, 2 do call('HSET', KEYS[2], ARGV[a], ARGV[a + 1]) end
return 1
