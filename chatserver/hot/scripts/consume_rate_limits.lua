#!lua flags=allow-oom
-- Takes tokens from token buckets, or returns unused ones.
--
-- item key limit   hash     tokens, and when they were counted (ms)
-- item arg burst   integer  tokens in a full bucket
-- item arg rate    string   tokens per second
-- item arg requested integer  maximum number to take; negative: number to return
-- item arg owed    integer  number to take even if there are fewer: the bucket may become negative
--
-- returns for each item {tokens taken, ms until the bucket has a whole token (0 if it has one)}
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out, n, a = {}, 0, 1
for k = 1, #KEYS do
  local burst, rate, requested = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local owed = tonumber(ARGV[a + 3])
  a = a + 4
  local held = call('HMGET', KEYS[k], 'tokens', 'at')
  local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
  if now > at then
    tokens, at = tokens + (now - at) * rate / 1000, now
  end
  tokens = math.min(burst, tokens)
  local taken = math.max(0, math.min(requested, math.floor(tokens)))
  tokens = math.min(burst, tokens - (requested < 0 and requested or taken) - owed)
  call('HSET', KEYS[k], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', at))
  -- A full bucket needs no key.
  call('PEXPIRE', KEYS[k], math.ceil((burst - tokens) / rate * 1000) + 1000)
  out[n + 1] = taken
  out[n + 2] = tokens < 1 and math.ceil((1 - tokens) / rate * 1000) or 0
  n = n + 2
end
return out
