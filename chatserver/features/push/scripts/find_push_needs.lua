#!lua flags=no-writes
-- Finds the users who may need a push notification for a chat: those with push subscriptions, and
-- no client in the foreground.
--
-- key gateways  zset    gateway to expiry
-- arg chat_id   string
-- item key seen     hash    presence and sessions of the user
-- item key box      hash    user state: chats and read marks
-- item key pushing  string  1: may have push subscriptions, 0: has none; missing: unknown
--
-- returns for each item {state, seq up to which the chat is read}. State 0: no push subscriptions,
-- so no push; 1: push; 2: push if the user has subscriptions, which is not known; 3: a client is in
-- the foreground, or was until recently
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out, n = {}, 0

local function is_in_foreground(seen)
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
  if known == '0' then
    out[n + 1], out[n + 2] = 0, 0
  else
    out[n + 1] = is_in_foreground(KEYS[k]) and 3 or known and 1 or 2
    out[n + 2] = tonumber(call('HGET', KEYS[k + 1], 'r:' .. ARGV[1]) or 0)
  end
  n = n + 2
end
return out
