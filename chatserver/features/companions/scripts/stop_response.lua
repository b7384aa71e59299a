#!lua flags=allow-oom
-- Requests the stop of the AI response that is in progress in a companion session.
--
-- key asking  hash    pending AI response: begun, newest, stop (chat seqs)
--
-- returns the seq of the message whose AI response is to stop, or 0 if there is none
local call = redis.call
local held = call('HMGET', KEYS[1], 'begun', 'newest')
local seq = tonumber(held[1] or 0)
if seq == 0 then seq = tonumber(held[2] or 0) end
if seq > 0 then call('HSET', KEYS[1], 'stop', string.format('%d', seq)) end
return seq
