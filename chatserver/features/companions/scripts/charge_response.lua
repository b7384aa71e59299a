#!lua flags=allow-oom
-- Counts the tokens used by an AI response, and removes its reservation.
--
-- key tokens   hash    day and tokens used on it; `t:<chat>`: <response>:<reserved>:<until ms>
-- arg chat     string
-- arg response string  id of the reservation; empty: no reservation
-- arg spent    integer tokens
--
-- returns 1, or 0 if the response was already charged
local call = redis.call
local DAY_MS = 86400000
if ARGV[2] ~= '' then
  local held = call('HGET', KEYS[1], 't:' .. ARGV[1])
  if not held or string.match(held, '^[^:]*') ~= ARGV[2] then return 0 end
  call('HDEL', KEYS[1], 't:' .. ARGV[1])
end
local time = call('TIME')
local today = string.format('%d', math.floor((time[1] * 1000 + math.floor(time[2] / 1000)) / DAY_MS))
if call('HGET', KEYS[1], 'day') ~= today then call('HSET', KEYS[1], 'day', today, 'used', 0) end
call('HINCRBY', KEYS[1], 'used', ARGV[3])
call('PEXPIRE', KEYS[1], 2 * DAY_MS)
return 1
