#!lua flags=allow-oom
-- Records up to which seq each chat is persisted, if that is after the checkpoint; only for the
-- holder of the lease, in the epoch in which it read the entries: a later epoch may assign their seqs
-- to other entries.
--
-- key lease       hash    owner, token
-- key epoch       hash    epoch
-- key progress    hash    chat to the seq up to which it is persisted; removed by `move_checkpoint`
-- arg token       integer fencing token of the caller
-- arg epoch       string
-- item arg chat   string
-- item arg upto   integer
--
-- returns 1, or 0 if the caller no longer holds the lease, or the epoch has ended
local call = redis.call
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
if call('HGET', KEYS[2], 'epoch') ~= ARGV[2] then return 0 end
for a = 3, #ARGV, 2 do call('HSET', KEYS[3], ARGV[a], ARGV[a + 1]) end
return 1
