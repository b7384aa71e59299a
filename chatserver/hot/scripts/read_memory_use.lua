#!lua flags=no-writes
-- Reads how much memory a Redis server uses.
--
-- key epoch  hash  of any partition of the server
--
-- returns {used_memory, maxmemory} in bytes; maxmemory is 0 if it is not set
local info = redis.call('INFO', 'memory')
local used, limit = string.match(info, 'used_memory:(%d+)'), string.match(info, 'maxmemory:(%d+)')
return {tonumber(used), tonumber(limit)}
