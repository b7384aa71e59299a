#!lua flags=allow-oom
-- Registers sessions of users, and returns the older sessions that they replace.
--
-- A device keeps its latest session, and a user keeps the newest `sessions_max` sessions. A session
-- that is registered again keeps its start time. It may itself be replaced, by a newer session of
-- its device.
--
-- key gateways      zset     gateway to expiry
-- arg gateway       string   gateway of the sessions
-- arg sessions_max  integer  per user
-- arg ttl_ms        integer  TTL of a user's presence data
-- item key seen     hash     presence and sessions of the user
-- item arg session  string
-- item arg device   string
-- item arg started  integer  ms, as returned before; 0: it starts now
--
-- returns for each item the start time, the number of replaced sessions, and the session and
-- gateway of each
local call = redis.call
local gateway, sessions_max, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local alive = {}
local function is_alive(name)
  if alive[name] == nil then
    local expiry = tonumber(call('ZSCORE', KEYS[1], name))
    alive[name] = name == gateway or (expiry ~= nil and expiry > now)
  end
  return alive[name]
end

local function is_newer(a, b)
  return a.started > b.started or (a.started == b.started and a.session > b.session)
end

local out, n, a = {}, 0, 4
for k = 2, #KEYS do
  local seen, session, device = KEYS[k], ARGV[a], ARGV[a + 1]
  local started = tonumber(ARGV[a + 2])
  a = a + 3
  local others, fields = {}, call('HGETALL', seen)
  local latest = 0
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 's:' then
      local where, what, from = string.match(fields[i + 1], '^(%S+) (%S+) (%S+)$')
      local name = string.sub(fields[i], 3)
      if not is_alive(where) then
        call('HDEL', seen, fields[i])
      elseif name ~= session then
        others[#others + 1] =
          {session = name, gateway = where, device = what, started = tonumber(from)}
        latest = math.max(latest, tonumber(from))
      end
    end
  end
  -- A new session starts after all others, even in the same millisecond or if the clock was set
  -- back.
  if started == 0 then started = math.max(now, latest + 1) end
  local own = {session = session, gateway = gateway, device = device, started = started}
  local kept, replaced = {own}, {}
  for _, other in ipairs(others) do
    if other.device == device and is_newer(own, other) then
      replaced[#replaced + 1] = other
    elseif other.device == device then
      replaced[#replaced + 1] = own
    else
      kept[#kept + 1] = other
    end
  end
  table.sort(kept, is_newer)
  for i = sessions_max + 1, #kept do replaced[#replaced + 1] = kept[i] end
  call('HSET', seen, 's:' .. session,
    gateway .. ' ' .. device .. ' ' .. string.format('%.0f', started))
  out[n + 1] = string.format('%.0f', started)
  out[n + 2] = #replaced
  n = n + 2
  for _, one in ipairs(replaced) do
    call('HDEL', seen, 's:' .. one.session)
    out[n + 1] = one.session
    out[n + 2] = one.gateway
    n = n + 2
  end
  call('PEXPIRE', seen, ttl_ms)
end
return out
