#!lua flags=allow-oom
-- Says that a gateway lives, so that what it keeps about users counts.
--
-- key gateways  zset     gateway to expiry, on Redis's clock
-- arg gateway   string
-- arg ttl_ms    integer  when it counts as dead without a refresh
--
-- returns 1 if it was alive all the time; 0: others may have taken it for dead
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = tonumber(call('ZSCORE', KEYS[1], ARGV[1]))
call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
-- The dead stay for a day: when they died tells when their users were last seen.
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 86400000))
return expiry and expiry > now and 1 or 0
