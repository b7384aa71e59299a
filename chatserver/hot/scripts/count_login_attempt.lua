#!lua flags=allow-oom
-- Counts a login attempt in the token buckets of its source (a network, or a known device) and of
-- the account's unknown devices (its budget).
--
-- key login_attempts hash     tokens of this source for this account, and when counted (ms)
-- key guesses        hash     tokens of all unknown devices for this account, and when counted (ms)
-- arg burst          integer  tokens in a full bucket of a source
-- arg rate           string   tokens per second
-- arg account_burst  integer  tokens in a full budget; 0: the attempt is not counted in it
-- arg account_rate   string   tokens per second
-- arg sign           integer  1: count the attempt; -1: return the token (the password was right)
--
-- returns {1 if allowed, ms until the source has a token, attempts used by the source,
-- 1 if the account had a token, attempts used by unknown devices for the account}
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sign = tonumber(ARGV[5])

local function update_bucket(key, burst, rate)
  local held = call('HMGET', key, 'tokens', 'at')
  local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
  if now > at then
    tokens, at = math.min(burst, tokens + (now - at) * rate / 1000), now
  end
  local is_taken = tokens >= sign
  if is_taken then
    tokens = math.min(burst, tokens - sign)
  end
  call('HSET', key, 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', at))
  -- A full bucket needs no key.
  call('PEXPIRE', key, math.ceil((burst - tokens) / rate * 1000) + 1000)
  return is_taken, tokens
end

local burst, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local is_taken, tokens = update_bucket(KEYS[1], burst, rate)
if not is_taken then
  return {0, math.ceil((1 - tokens) / rate * 1000), burst, 0, 0}
end
local account_burst, has_budget = tonumber(ARGV[3]), true
local guesses = 0
if account_burst > 0 then
  local left
  has_budget, left = update_bucket(KEYS[2], account_burst, tonumber(ARGV[4]))
  guesses = math.max(0, math.ceil(account_burst - left - 0.000001) - (has_budget and 1 or 0))
end
return {1, 0, math.max(0, math.ceil(burst - tokens - 0.000001) - 1), has_budget and 1 or 0, guesses}
