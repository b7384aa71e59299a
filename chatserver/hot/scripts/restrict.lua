#!lua flags=allow-oom
-- Sets what a chat's gate demands of members besides the version of the membership: that its two users
-- may not write to each other, that it has ended, slow mode, that messages end. From then on no commit
-- takes an older list of members.
--
-- key chat     hash    head of the chat
-- arg epoch    string  the current life of the hot tier
-- arg version  integer of the membership and settings that say so
-- arg strict   string  ":r<seconds>" or empty, then ":b", ":e", ":s<seconds>" or empty
--
-- returns 1 if it is so now; 0 if the chat is not open in this epoch (load it), 2 if a later change
-- has been made already
local gate = redis.call('HGET', KEYS[1], 'gate') or ''
if string.sub(gate, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then return 0 end
if tonumber(string.match(gate, '^%d+', #ARGV[1] + 2)) > tonumber(ARGV[2]) then return 2 end
local pending = string.sub(gate, -2) == ':p' and ':p' or ''
redis.call('HSET', KEYS[1], 'gate', ARGV[1] .. ':' .. ARGV[2] .. ARGV[3] .. pending)
return 1
