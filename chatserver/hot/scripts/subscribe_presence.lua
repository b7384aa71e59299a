#!lua flags=allow-oom
-- Subscribes a gateway to the presence of users, or unsubscribes it, and returns their presence.
--
-- key gateways      zset     gateway to expiry
-- arg gateway       string   subscribing gateway
-- arg alive_ms      integer  TTL of a gateway without a refresh
-- arg ttl_ms        integer  TTL without a refresh; 0: unsubscribe
-- item key seen     hash     presence and sessions of the user
-- item key watched  zset     subscribed gateway to expiry
--
-- returns for each item {state, last seen (ms), version}
local call = redis.call
local gateway, alive_ms, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_ms, expiry_ms = string.format('%.0f', now), string.format('%.0f', now + ttl_ms)
local rank = {offline = 0, away = 1, online = 2}
local out, n = {}, 0
for k = 2, #KEYS, 2 do
  local seen, watched = KEYS[k], KEYS[k + 1]
  if ttl_ms == 0 then
    call('ZREM', watched, gateway)
  else
    call('ZADD', watched, expiry_ms, gateway)
    call('PEXPIRE', watched, ttl_ms)
  end
  call('ZREMRANGEBYSCORE', watched, '-inf', now_ms)
  local state, last, version, fields = 'offline', 0, 0, call('HGETALL', seen)
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name == 'last' then
      last = math.max(last, tonumber(value))
    elseif name == 'v' then
      version = tonumber(value)
    elseif string.sub(name, 1, 2) == 'g:' then
      local expiry = tonumber(call('ZSCORE', KEYS[1], string.sub(name, 3)))
      if expiry and expiry > now then
        if rank[value] > rank[state] then state = value end
      elseif expiry then
        last = math.max(last, expiry - alive_ms)
      end
    end
  end
  out[n + 1] = state
  out[n + 2] = string.format('%.0f', last)
  out[n + 3] = string.format('%.0f', version)
  n = n + 3
end
return out
