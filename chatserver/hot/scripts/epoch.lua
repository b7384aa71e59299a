#!lua flags=allow-oom
-- Returns the epoch of a partition; makes another if this Redis is not the one it was made in,
-- unless the partition came here from that one and has lost nothing on the way.
--
-- key epoch       hash    epoch, replid, partitions
-- arg replid      string  replication id of this Redis
-- arg came_from   string  replication id that the partition surely came from without loss, or empty
-- arg candidate   string  name for a new epoch
-- arg partitions  integer how many the caller counts with
--
-- returns {epoch, partitions}
local call = redis.call
local had = call('HMGET', KEYS[1], 'epoch', 'replid', 'partitions')
if had[3] and had[3] ~= ARGV[4] then return {had[1], tonumber(had[3])} end
if had[1] and had[2] == ARGV[1] then return {had[1], tonumber(had[3])} end
local epoch = ARGV[3]
if had[1] and ARGV[2] ~= '' and had[2] == ARGV[2] then epoch = had[1] end
call('HSET', KEYS[1], 'epoch', epoch, 'replid', ARGV[1], 'partitions', ARGV[4])
return {epoch, tonumber(ARGV[4])}
