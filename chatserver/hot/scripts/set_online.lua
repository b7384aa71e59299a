#!lua flags=allow-oom
-- Marks users as online or offline on a gateway, and returns the state of their inboxes.
--
-- key where      hash     user to gateways, comma-separated
-- arg epoch      string   current epoch of the partition
-- arg gateway    string
-- arg ttl_ms     integer  TTL without a refresh; 0: the users are offline on this gateway
-- item key box     hash    user state: chats and read marks
-- item key online  zset    gateway to expiry
-- item key inbox   stream   entry "0-<seq>"; see commit_messages.lua
-- item arg user    string
--
-- returns for each item {inbox_seq, first inbox_seq that the inbox still has, 1 if the user state
-- was loaded in this epoch}
local call = redis.call
local epoch, gateway, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_ms, expiry_ms = string.format('%.0f', now), string.format('%.0f', now + ttl_ms)
-- returns the newest seq of an inbox, and the first that it still has
local function read_inbox(key)
  local newest, first = 0, nil
  if call('EXISTS', key) == 0 then return 0, 1 end
  local info = call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      newest = tonumber(string.match(info[i + 1], '%d+$'))
    elseif info[i] == 'first-entry' and info[i + 1] then
      local entry = info[i + 1]
      first = tonumber(string.match(entry[1], '%d+$'))
      local from, upto = string.match(entry[2][2], '^(%d+)-(%d+)$')
      if from and entry[2][1] ~= '!' then first = first - (upto - from) end
    end
  end
  return newest, first or newest + 1
end

local out, n, a = {}, 0, 4
for k = 2, #KEYS, 3 do
  local user, online = ARGV[a], KEYS[k + 1]
  if ttl_ms == 0 then
    call('ZREM', online, gateway)
  else
    call('ZADD', online, expiry_ms, gateway)
    call('PEXPIRE', online, ttl_ms)
  end
  call('ZREMRANGEBYSCORE', online, '-inf', now_ms)
  -- `where` is a copy of `online` for commits, which read it for all recipients in one call.
  local gateways = table.concat(call('ZRANGE', online, 0, -1), ',')
  if gateways == '' then
    call('HDEL', KEYS[1], user)
  elseif call('HGET', KEYS[1], user) ~= gateways then
    call('HSET', KEYS[1], user, gateways)
  end
  out[n + 1], out[n + 2] = read_inbox(KEYS[k + 2])
  out[n + 3] = call('HGET', KEYS[k], 'known') == epoch and 1 or 0
  n = n + 3
  a = a + 1
end
return out
