#!lua flags=allow-oom
-- Sets the write policy (blocked, ended, slow mode) and retention in a chat's `gate`. A commit with
-- another cached `gate` then checks each sender in Redis.
--
-- key chat     hash    the chat's `seq`, `ts`, `gate` and other fields
-- arg epoch    string  current epoch of the partition
-- arg version  integer version of the membership and settings with this policy
-- arg write_policy string ":r<seconds>" or empty, then ":b", ":e", ":s<seconds>" or empty
--
-- returns 1 if it is set; 0 if the chat is not loaded in this epoch; 2 if a later change has
-- already been applied
local gate = redis.call('HGET', KEYS[1], 'gate') or ''
if string.sub(gate, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then return 0 end
if tonumber(string.match(gate, '^%d+', #ARGV[1] + 2)) > tonumber(ARGV[2]) then return 2 end
local pending = string.sub(gate, -2) == ':p' and ':p' or ''
redis.call('HSET', KEYS[1], 'gate', ARGV[1] .. ':' .. ARGV[2] .. ARGV[3] .. pending)
return 1
