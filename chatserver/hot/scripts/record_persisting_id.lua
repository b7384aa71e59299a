#!lua flags=allow-oom
-- Records the newest backlog entry that may be partly persisted although it is after the
-- checkpoint; only for the holder of the lease.
--
-- key lease       hash    owner, token
-- key checkpoint  hash    ahead: newest entry that may be partly persisted
-- arg token       integer fencing token of the caller
-- arg id          string  that entry
--
-- returns 1, or 0 if the caller no longer holds the lease
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'ahead', ARGV[2])
return 1
