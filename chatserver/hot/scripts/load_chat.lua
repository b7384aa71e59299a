#!lua flags=allow-oom
-- Loads a chat in this epoch: its head, its members, and the refs of its newest messages. The head
-- (newest seq and ts) comes from the warm tier or Redis, whichever is higher. Does nothing if the
-- chat is already loaded.
--
-- If Redis lost recent writes, it may have outdated messages, such as a text that was deleted
-- later. Messages that the warm tier has are therefore removed from Redis.
--
-- key chat     hash    the chat's `seq`, `ts`, `gate` and other fields, and its refs; see
--                      commit_messages.lua. It may expire if the chat was evicted
-- key members  hash    user to "role:joined"
-- key log      stream  committed entries, entry id "<seq>-0"
-- key over     hash    seq to current state of the entry
-- key revs     zset    seq of an entry in `over`, score: seq of its last change
-- key uncounted zset  seqs of entries that never count as unread
-- key epoch    hash    `epoch`: epoch that this Redis holds
-- key turnover hash    pending notices of joins, leaves and of the chat becoming large or
--                      small; see change_members.lua. The latter are deleted if they are from an
--                      earlier epoch, and created again if not all members were notified
-- arg epoch    string  current epoch of the partition
-- arg seq      integer newest seq of the warm tier
-- arg ts       string  its timestamp
-- arg version  string  version of the membership, followed by the write policy
-- arg kind     string  direct, group or companion
-- arg name     string  or empty
-- arg history  string  readable messages: "all", or "joined": only since the member joined
-- arg large    integer version at which it became a large chat, 0 if it is not large
-- arg ref_ttl_s integer TTL of a `ref`
-- arg changed  string  changes with entries in the warm tier or Redis: "version:first seq",
--                     comma-separated, newest first
-- arg picture  string  or empty
-- arg dead     string  seqs of dead letters among the newest messages, separated by commas
-- arg members_count integer pairs that follow: user, "role:joined"
-- item arg ref   bytes   field of the ref of a committed entry; kept for messages that are at
--                        most `ref_ttl_s` old
-- item arg place bytes   its seq, ts, mid and request digest (`format_ref_record`)
-- item arg sender string sender of a message, who has read up to it; prefixed with "#" if the
--                        message is deleted; empty if the entry is not a message
--
-- returns 1 if the chat is newly loaded; 0 if it was already loaded; 2 if Redis has a newer
-- membership, so the caller has to read the chat again; 3 if this Redis has no epoch or another
-- epoch
local call = redis.call
if call('HGET', KEYS[7], 'epoch') ~= ARGV[1] then return 3 end
local head = call('HMGET', KEYS[1], 'gate', 'seq', 'ts', 'changed', 'stored', 'dead')
if head[1] and string.sub(head[1], 1, #ARGV[1] + 1) == ARGV[1] .. ':' then return 0 end
local had_version = head[1] and string.match(head[1], '^[^:]*:(%d+)')
if had_version and tonumber(had_version) > tonumber(string.match(ARGV[4], '^%d+')) then
  return 2
end
local count = tonumber(ARGV[13])
call('PERSIST', KEYS[1])
call('DEL', KEYS[2])
for i = 0, count - 1 do
  call('HSET', KEYS[2], ARGV[14 + 2 * i], ARGV[15 + 2 * i])
end
local seq, ts = tonumber(ARGV[2]), tonumber(ARGV[3])
local stored, dead = seq, ARGV[12]
-- The persist worker may have stored more since the caller read the warm tier.
if tonumber(head[5] or 0) > stored then
  stored = tonumber(head[5])
  for at in string.gmatch(head[6] or '', '%d+') do
    if tonumber(at) > seq then dead = dead .. (dead == '' and '' or ',') .. at end
  end
end
if head[2] and tonumber(head[2]) > seq then seq = tonumber(head[2]) end
if head[3] and tonumber(head[3]) > ts then ts = tonumber(head[3]) end
call('XTRIM', KEYS[3], 'MINID', string.format('%d-0', stored + 1))
while true do
  local done = call('ZRANGEBYSCORE', KEYS[5], '-inf', stored, 'LIMIT', 0, 1000)
  if #done == 0 then break end
  call('HDEL', KEYS[4], unpack(done))
  call('ZREM', KEYS[5], unpack(done))
end
-- Merge the positions of the last changes from the warm tier and Redis; see change_members.lua.
local changed = {}
for version, first in string.gmatch(ARGV[10], '(%d+):(%d+)') do
  changed[#changed + 1] = version .. ':' .. first .. 'l'
end
for version, first in string.gmatch(head[4] or '', '(%d+):(%d+)') do
  if #changed < 33 and not string.find(',' .. ARGV[10], ',' .. version .. ':', 1, true) then
    changed[#changed + 1] = version .. ':' .. first .. 'l'
  end
end
if #changed > 0 then call('HSET', KEYS[1], 'changed', table.concat(changed, ',')) end
-- Redis lost the entries above `seq`. Their seqs will be assigned to other entries.
call('ZREMRANGEBYSCORE', KEYS[6], string.format('(%d', seq), '+inf')
local own = {}
local ref_ts_min = (call('TIME')[1] - ARGV[9]) * 1000000 -- older refs can be reused
for a = 14 + 2 * count, #ARGV, 3 do
  local ref, place, sender = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local seq_of, ts_of = struct.unpack('>I5I7', place)
  local at = string.format('%d', seq_of)
  if sender == '' or ts_of >= ref_ts_min then call('HSETNX', KEYS[1], ref, place) end
  local is_deleted = string.sub(sender, 1, 1) == '#'
  if is_deleted then sender = string.sub(sender, 2) end
  if is_deleted or sender == '' then call('ZADD', KEYS[6], at, at) end
  if sender ~= '' then own[sender] = at end
end
local turnover = call('HGETALL', KEYS[8])
for i = 1, #turnover, 2 do
  local field, value = turnover[i], turnover[i + 1]
  local while_small = string.match(value, '^(in:%d+):0:1$') or string.match(value, '^(out:%d+:%d+):1$')
  if string.sub(field, -2) == ':+' then
    call('HDEL', KEYS[8], field)
  elseif ARGV[8] == '0' and while_small then
    call('HSET', KEYS[8], field, while_small)
  end
end
for sender, at in pairs(own) do
  local had = call('HGET', KEYS[1], 's:' .. sender)
  if not had or tonumber(had) < tonumber(at) then call('HSET', KEYS[1], 's:' .. sender, at) end
end
call('HSET', KEYS[1], 'gate', ARGV[1] .. ':' .. ARGV[4], 'seq', seq, 'base', seq,
  'ts', string.format('%.0f', ts), 'stored', stored, 'kind', ARGV[5], 'name', ARGV[6])
call('HSET', KEYS[1], 'history', ARGV[7], 'large', ARGV[8], 'turns', '',
  'picture', ARGV[11])
if dead == '' then call('HDEL', KEYS[1], 'dead') else call('HSET', KEYS[1], 'dead', dead) end
return 1
