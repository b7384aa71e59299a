#!lua flags=allow-oom
-- Claims the push notification of a message to a device before it is sent, so that it is sent at
-- most once.
--
-- If Redis loses messages, their seqs are assigned again. Later messages have a later timestamp, so
-- the claims are compared by timestamp.
--
-- key pushed    hash    device and chat to the ts of the message for which a push was claimed
-- key box       hash    user state: chats and read marks
-- arg field     string  device and chat
-- arg chat_id   string
-- arg seq       integer
-- arg ts        integer
-- arg ttl_s     integer TTL of claims
-- arg is_retry  string  "1": the push was claimed before, and is known not to have been sent
--
-- returns 1 to send the push; 0 if the message is read, or this or a newer push was claimed
local call = redis.call
if tonumber(call('HGET', KEYS[2], 'r:' .. ARGV[2]) or 0) >= tonumber(ARGV[3]) then return 0 end
local ts, claimed = tonumber(ARGV[4]), tonumber(call('HGET', KEYS[1], ARGV[1]) or 0)
if ARGV[6] == '1' then return claimed == ts and 1 or 0 end
if claimed >= ts then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[4])
call('EXPIRE', KEYS[1], ARGV[5])
return 1
