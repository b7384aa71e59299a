#!lua flags=allow-oom
-- Extends the expiry of a gateway, so that the presence data that it published stays valid.
--
-- key gateways  zset     gateway to expiry, on Redis's clock
-- arg gateway   string
-- arg ttl_ms    integer  TTL without a refresh
--
-- returns 1 if the gateway had not expired; 0 if other processes may have treated it as dead
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = tonumber(call('ZSCORE', KEYS[1], ARGV[1]))
call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
-- Keep expired gateways for a day: the last-seen time of their users is derived from the expiry.
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 86400000))
return expiry and expiry > now and 1 or 0
