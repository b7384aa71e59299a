#!lua flags=allow-oom
-- Checks whether an AI response for a user is within the limits, and reserves its tokens.
--
-- key tokens        hash    day and tokens used on it; `t:<chat>`: <response>:<reserved>:<until ms>
-- arg chat          string
-- arg response      string  id of the AI response; empty: check only
-- arg requested     integer tokens to reserve
-- arg responses_max integer concurrent AI responses per user
-- arg tokens_max    integer per day
-- arg hold_ms       integer time after which an uncharged reservation counts as used
--
-- returns 0 and the tokens left today; 1 if there are too many concurrent AI responses; or 2 and
-- the ms until tokens are available again
local call, format = redis.call, string.format
local DAY_MS = 86400000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local today = format('%d', math.floor(now / DAY_MS))
local all, held = call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do held[all[i]] = all[i + 1] end
local used = held.day == today and tonumber(held.used) or 0
local responses, reserved = 0, 0
for name, value in pairs(held) do
  if string.sub(name, 1, 2) == 't:' then
    local tokens, until_ms = string.match(value, ':(%d+):(%d+)$')
    if tonumber(until_ms) <= now then
      call('HDEL', KEYS[1], name)
      used = used + tonumber(tokens)
    elseif name ~= 't:' .. ARGV[1] then
      responses, reserved = responses + 1, reserved + tonumber(tokens)
    end
  end
end
call('HSET', KEYS[1], 'day', today, 'used', format('%.0f', used))
call('PEXPIRE', KEYS[1], 2 * DAY_MS)
if responses >= tonumber(ARGV[4]) then return {1, 0} end
local left = tonumber(ARGV[5]) - used - reserved
if left <= 0 then return {2, DAY_MS - now % DAY_MS} end
if ARGV[2] ~= '' then
  local value = format('%s:%s:%.0f', ARGV[2], ARGV[3], now + tonumber(ARGV[6]))
  call('HSET', KEYS[1], 't:' .. ARGV[1], value)
end
return {0, left}
