#!lua flags=allow-oom
-- Starts or resumes an AI response in a companion session; only for the holder of the lease.
--
-- key lease   hash    owner, token
-- key asking  hash    pending AI response: begun, newest, stop, changed (chat seqs); tries
-- arg token   integer fencing token of the caller
--
-- returns {seq of the message to respond to, or 0; stop; changed, or 0; tries}; an empty list if
-- the caller no longer holds the lease
local call = redis.call
if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return {} end
local held = call('HMGET', KEYS[2], 'begun', 'newest', 'stop', 'changed', 'tries')
for i = 1, 5 do held[i] = tonumber(held[i] or 0) end
-- `begun` is kept until the response is finished. If the worker crashes, another one starts the
-- response again.
if held[1] == 0 and held[2] > 0 then
  held[1] = held[2]
  call('HSET', KEYS[2], 'begun', string.format('%d', held[1]))
end
return {held[1], held[3], held[4], held[5]}
