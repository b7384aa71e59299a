-- Says who may have to be told of a chat by push: has devices for it, and shows the client nowhere.
--
-- key gateways  zset    gateway to expiry
-- arg chat_id   string
-- item key seen     hash    what is known of the user
-- item key box      hash    chats and marks of a user
-- item key pushing  string  1: may have devices to push to, 0: has none; absent: not known
--
-- returns for each item {state, seq up to which the chat is read}; state 0: not to be told,
-- 1: to be told, 2: to be told if there are devices, which is not known
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out, n = {}, 0

local function is_in_front(seen)
  local fields = call('HGETALL', seen)
  for i = 1, #fields, 2 do
    if fields[i + 1] == 'online' and string.sub(fields[i], 1, 2) == 'g:' then
      local expiry = tonumber(call('ZSCORE', KEYS[1], string.sub(fields[i], 3)))
      if expiry and expiry > now then return true end
    end
  end
  return false
end

for k = 2, #KEYS, 3 do
  local known = call('GET', KEYS[k + 2])
  if known == '0' or is_in_front(KEYS[k]) then
    out[n + 1], out[n + 2] = 0, 0
  else
    out[n + 1] = known and 1 or 2
    out[n + 2] = tonumber(call('HGET', KEYS[k + 1], 'r:' .. ARGV[1]) or 0)
  end
  n = n + 2
end
return out
