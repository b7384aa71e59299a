#!lua flags=allow-oom
-- Publishes the presence of users on a gateway, and returns the gateways to notify of changes.
--
-- key gateways      zset     gateway to expiry
-- arg gateway       string   gateway of the users
-- arg alive_ms      integer  TTL of a gateway without a refresh
-- arg ttl_ms        integer  TTL of a user's presence data
-- item key seen     hash     presence and sessions of the user
-- item key watched  zset     subscribed gateway to expiry
-- item arg state    string   online, away, or offline
-- item arg ago_ms   integer  time since the change
--
-- returns for each item {1 if the user's state changed, state, last seen (ms), version,
--   the subscribed gateways, comma-separated}
local call = redis.call
local gateway, alive_ms, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_ms = string.format('%.0f', now)
local rank = {offline = 0, away = 1, online = 2}
local out, n, a = {}, 0, 4
for k = 2, #KEYS, 2 do
  local seen, watched, state = KEYS[k], KEYS[k + 1], ARGV[a]
  local last, version = now - tonumber(ARGV[a + 1]), 0
  a = a + 2
  local before, after, fields = 'offline', state, call('HGETALL', seen)
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name == 'last' then
      last = math.max(last, tonumber(value))
    elseif name == 'v' then
      version = tonumber(value)
    elseif string.sub(name, 1, 2) == 'g:' then
      local where = string.sub(name, 3)
      local expiry = tonumber(call('ZSCORE', KEYS[1], where))
      if expiry and expiry > now then
        if rank[value] > rank[before] then before = value end
        if where ~= gateway and rank[value] > rank[after] then after = value end
      else
        call('HDEL', seen, name)
        if expiry then last = math.max(last, expiry - alive_ms) end
      end
    end
  end
  if state == 'offline' then
    call('HDEL', seen, 'g:' .. gateway)
  else
    call('HSET', seen, 'g:' .. gateway, state)
  end
  local is_changed = before ~= after
  if is_changed then version = math.max(version + 1, now) end
  call('HSET', seen, 'last', string.format('%.0f', last), 'v', string.format('%.0f', version))
  call('PEXPIRE', seen, ttl_ms)
  call('ZREMRANGEBYSCORE', watched, '-inf', now_ms)
  out[n + 1] = is_changed and 1 or 0
  out[n + 2] = after
  out[n + 3] = string.format('%.0f', last)
  out[n + 4] = string.format('%.0f', version)
  out[n + 5] = table.concat(call('ZRANGE', watched, 0, -1), ',')
  n = n + 5
end
return out
