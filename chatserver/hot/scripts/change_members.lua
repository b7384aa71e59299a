#!lua flags=allow-oom
-- Changes the members and the name of a chat, and appends the entries that record the change.
-- Idempotent.
--
-- The change may make the chat large, or no longer large (a transition). The transition applies to
-- the entries after the change; the caller notifies the members.
--
-- key chat         hash     the chat's `seq`, `ts`, `gate` and other fields, and its refs
-- key members      hash     user to "role:joined", with ":<until>m" appended if muted
-- key log          stream   committed entries, entry id "<seq>-0", field: timestamp
-- key backlog      stream   entries that are not persisted yet
-- key undelivered  zset     chats with an unfinished fan-out
-- key turnover     hash     pending notices, until they are delivered. "version:user" to "in:seq"
--                           (joined) or "out:seq:after" (left; receives the entries above `after`
--                           up to `seq`); to "in:seq:0:1" or "out:seq:after:1" if the chat was
--                           large. "version:+" to "up:seq" or "down:seq": the chat became large or
--                           small
-- key uncounted zset  seqs of entries that never count as unread, the newest 500
-- arg epoch        string   current epoch of the partition
-- arg chat_id      string
-- arg version      integer  version of the membership after this change
-- arg title        string   name of the chat, or empty
-- arg history      string   readable messages: "all", or "joined": only since the member joined
-- arg ref          bytes    field of the ref of the first entry
-- arg name         bytes    mid and request digest of the first entry (`format_name`)
-- arg large        integer  version at which the chat became large, 0 if it is small after this
--                           change
-- arg transition   string   transition with this change: "up" (large), "down" (small), or empty
-- arg repeat_lost  string   "1": Redis lost the entries: append them again, even after later
--                              changes; empty: Redis never had the change
-- arg picture     string   picture of the chat, or empty
-- item arg user    string   user of the entry, or empty
-- item arg role    string   new role, with ":<until>m" appended for a new mute, or ":" to end a
--                           mute; empty: no longer a member
-- item arg is_new  string   "1": was not a member before
-- item arg tail    bytes    the entry's JSON without seq and ts
--
-- returns {1, first seq, last seq} of the entries; {0} if the chat is not loaded in this epoch; {2}
-- if a later change has already been applied
local call, format, sub = redis.call, string.format, string.sub
local chat, version = ARGV[2], tonumber(ARGV[3])
local large, transition = ARGV[8], ARGV[9]
local count = (#ARGV - 11) / 4
local was_large = (transition == 'down' or (transition == '' and large ~= '0')) and ':1' or ''
local head = call('HMGET', KEYS[1], 'gate', 'seq', 'ts', 'base', 'done', 'changed', 'turns', ARGV[6])
local gate = head[1] or ''
if sub(gate, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then return {0} end
local had_version = tonumber(string.match(gate, ':(%d+)', #ARGV[1] + 1))
local is_repeat = ARGV[10] == '1'
if had_version > version and not is_repeat then return {2} end

-- `first` is set if Redis already has the entries: this script appended them, or they were loaded.
local first
local changed = head[6] or ''
local found_at, mark = string.match(',' .. changed, format(',%d:(%%d+)(%%a?)', version))
if found_at then
  first = tonumber(found_at)
  -- If the chat was loaded after the change was applied (`mark` is "l"), `members` lacks the
  -- change: apply it again.
  if is_repeat or (had_version == version and mark ~= 'l') then
    return {1, first, first + count - 1}
  end
end
local is_pending = sub(gate, -2) == ':p'
local done = tonumber(is_pending and head[5] or head[2])
local is_logged = first ~= nil
first = first or tonumber(head[2]) + 1

for i = 0, count - 1 do
  local user, role = ARGV[12 + 4 * i], ARGV[13 + 4 * i]
  if user ~= '' then
    local had = call('HGET', KEYS[2], user)
    local joined, mute = string.match(had or '', ':(%d+)(.*)$')
    joined = tonumber(joined)
    local field, seq = format('%d:%s', version, user), format('%d', first + i)
    if role == '' then
      -- A member who leaves still receives the entries above `after`, up to the entry of the leave.
      local after = math.max(tonumber(head[4]) or 0, done, (joined or 1) - 1)
      -- A banned user who was not a member receives nothing.
      if ARGV[14 + 4 * i] ~= '1' then
        call('HDEL', KEYS[2], user)
        call('HSET', KEYS[6], field, format('out:%s:%d', seq, after) .. was_large)
      end
    elseif ARGV[14 + 4 * i] == '1' then
      -- `given` is the end of a mute from before the user left; the mute still applies.
      local name, given = string.match(role, '^(%a+)(.*)$')
      call('HSET', KEYS[2], user, name .. ':' .. seq .. given)
      call('HSET', KEYS[6], field, 'in:' .. seq .. (was_large ~= '' and ':0' or '') .. was_large)
    else
      local name, given = string.match(role, '^(%a+)(.*)$')
      if given ~= '' then mute = given end
      if mute == ':' then mute = '' end
      call('HSET', KEYS[2], user, format('%s:%d%s', name, joined or 0, mute or ''))
    end
  end
end

-- Keep the last 33 changes. The entries of up to 32 changes (`UNSTORED_MAX`) in the `directory`
-- table may not be persisted yet.
local places = {format('%d:%d%s', version, first, (is_repeat or found_at) and 'r' or '')}
for one in string.gmatch(changed, '[^,]+') do
  if #places < 33 and tonumber(string.match(one, '^%d+')) ~= version then places[#places + 1] = one end
end
local fields = {'changed', table.concat(places, ','), 'name', ARGV[4], 'history', ARGV[5],
  'picture', ARGV[11]}
local last = first + count - 1
if transition ~= '' then
  -- `turns` has the seq of each transition until all entries before it are delivered.
  local turns = {}
  for way, seq in string.gmatch(head[7] or '', '([+-])(%d+)') do
    if tonumber(seq) > done then turns[#turns + 1] = way .. seq end
  end
  if last > done then turns[#turns + 1] = (transition == 'up' and '+' or '-') .. format('%d', last) end
  fields[#fields + 1] = 'turns'
  fields[#fields + 1] = table.concat(turns, ',')
  call('HSET', KEYS[6], format('%d:+', version), format('%s:%d', transition, last))
end
fields[#fields + 1] = 'large'
fields[#fields + 1] = large
local pending = is_pending and ':p' or ''
-- Only `set_write_policy` changes the write policy.
local policy = string.match(gate, '^%d+(:[^p]+)', #ARGV[1] + 2) or ''
if not is_logged and count > 0 then
  local time = call('TIME')
  local now, ts = time[1] * 1000000 + time[2], tonumber(head[3])
  local entry = {'g', '-'}
  for i = 0, count - 1 do
    ts = math.max(now, ts + 1)
    local seq_text, ts_text = format('%d', first + i), format('%.0f', ts)
    local blob = '\n' .. ARGV[15 + 4 * i]
    call('XADD', KEYS[3], seq_text .. '-0', ts_text, blob)
    call('ZADD', KEYS[7], seq_text, seq_text)
    entry[#entry + 1], entry[#entry + 2] = seq_text .. ':' .. ts_text, blob
    if i == 0 and not head[8] then
      fields[#fields + 1] = ARGV[6]
      fields[#fields + 1] = struct.pack('>I5I7', first, ts) .. ARGV[7]
    end
    if i == count - 1 then
      for _, text in ipairs({'seq', seq_text, 'ts', ts_text}) do fields[#fields + 1] = text end
    end
  end
  call('XADD', KEYS[4], '*', unpack(entry))
  call('ZREMRANGEBYRANK', KEYS[7], 0, -501)
  -- ":p" delays the delivery of later messages until every inbox has these entries.
  pending = ':p'
  if not is_pending then
    fields[#fields + 1] = 'done'
    fields[#fields + 1] = head[2]
  end
  call('ZADD', KEYS[5], 'NX', format('%.0f', now / 1000), chat)
end
fields[#fields + 1] = 'gate'
fields[#fields + 1] = format('%s:%d%s%s', ARGV[1], math.max(version, had_version), policy, pending)
call('HSET', KEYS[1], unpack(fields))
return {1, first, last}
