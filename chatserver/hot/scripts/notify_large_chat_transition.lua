#!lua flags=allow-oom
-- Notifies users that a chat has become large, or is no longer large. Appends one entry to each
-- inbox, so that every device receives it at the same position. A transition that is not newer than
-- the last one has no effect. Transitions recorded in an earlier epoch are ignored: the chat may
-- become large again at another seq.
--
-- key where      hash     user to gateways, comma-separated
-- arg inbox_max  integer  events kept per inbox
-- arg chat_id    string
-- arg version    integer  version of the chat at the transition
-- arg is_large   string   "1": large from now on; empty: no longer large
-- arg epoch      string   epoch of the transition
-- item key box    hash    user state: chats and read marks
-- item key inbox  stream  entry id "0-<seq>"
-- item key large  hash    large chat to "inbox seq:since", with ":until" appended when the period
--                         has ended; after ";" up to 8 earlier periods, for devices that were
--                         offline during several periods
-- item arg user   string
-- item arg since  integer chat seq above which the transition applies
-- item arg field  string  field of the inbox entry: "!", or the chat for one of its entries
-- item arg value  bytes   value of the inbox entry
--
-- returns a flat list; for each item the number of appended entries, newest inbox seq and gateways
local call, format = redis.call, string.format
local inbox_max, chat_id, version, is_large = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1'
local epoch = ARGV[5]
local time = call('TIME')
local now = format('%.0f', time[1] * 1000000 + time[2])
local out, n, a = {}, 0, 6
for k = 2, #KEYS, 3 do
  local user, since = ARGV[a], ARGV[a + 1]
  local box = call('HMGET', KEYS[k], 'l:' .. chat_id, 'c:' .. chat_id)
  local appended, seq = 0, 0
  local had_version, had_epoch = string.match(box[1] or '0 ', '^(%d+) (.*)$')
  if had_epoch < epoch or had_epoch == epoch and tonumber(version) > tonumber(had_version) then
    local id = call('XADD', KEYS[k + 1], '0-*', ARGV[a + 2], ARGV[a + 3])
    appended, seq = 1, tonumber(string.sub(id, 3))
    call('HSET', KEYS[k], 'l:' .. chat_id, version .. ' ' .. epoch)
    if not box[2] then call('HSET', KEYS[k], 'c:' .. chat_id, is_large and now or '0') end
    local periods = {}
    -- Keep the large-chat periods recorded in this epoch, or loaded by load_user.lua (no epoch).
    local old = (had_epoch == '' or had_epoch == epoch) and call('HGET', KEYS[k + 2], chat_id)
    for period in string.gmatch(old or '', '[^;]+') do
      if #periods < 8 then periods[#periods + 1] = period end
    end
    local newest = format('%d:%s', seq, since)
    if not is_large then
      local had, had_until = string.match(periods[1] or '', '^%d+:(%d+):?(%d*)$')
      if had and had_until == '' then table.remove(periods, 1) else had = since end
      newest = format('%d:%s:%s', seq, had, since)
    end
    table.insert(periods, 1, newest)
    call('HSET', KEYS[k + 2], chat_id, table.concat(periods, ';'))
    if seq > inbox_max then
      call('XTRIM', KEYS[k + 1], 'MINID', format('0-%d', seq - inbox_max + 1))
    end
  end
  if appended == 0 then
    local newest = call('XREVRANGE', KEYS[k + 1], '+', '-', 'COUNT', 1)[1]
    seq = newest and tonumber(string.sub(newest[1], 3)) or 0
  end
  out[n + 1], out[n + 2], out[n + 3] = appended, seq, call('HGET', KEYS[1], user) or ''
  n = n + 3
  a = a + 4
end
return out
