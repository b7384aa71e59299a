#!lua flags=allow-oom
-- Claims the push notification of a message to a device before it is sent, so that it is sent at
-- most once.
--
-- key pushed    hash    device and chat to the seq for which a push was claimed
-- key box       hash    user state: chats and read marks
-- arg field     string  device and chat
-- arg chat_id   string
-- arg seq       integer
-- arg ttl_s     integer TTL of claims
-- arg is_retry  string  "1": the push was claimed before, and is known not to have been sent
--
-- returns 1 to send the push; 0 if the message is read, or this or a newer push was claimed
local call = redis.call
local seq = tonumber(ARGV[3])
if tonumber(call('HGET', KEYS[2], 'r:' .. ARGV[2]) or 0) >= seq then return 0 end
local claimed = tonumber(call('HGET', KEYS[1], ARGV[1]) or 0)
if ARGV[5] == '1' then return claimed == seq and 1 or 0 end
if claimed >= seq then return 0 end
call('HSET', KEYS[1], ARGV[1], string.format('%d', seq))
call('EXPIRE', KEYS[1], ARGV[4])
return 1
