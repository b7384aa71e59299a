#!lua
-- Commits an entry that changes a message: an edit, a delete for everyone, a reaction, a pin or an
-- unpin. Checks permissions, assigns seq and ts, and writes the new state of the message to the
-- overlay; a pin or an unpin leaves the message unchanged.
--
-- The message is read from the overlay, otherwise from the log. If neither has it, it is `base`,
-- which the caller read from the warm tier. `chatserver.protocol.message_change_effects` implements
-- the same rules in Python.
--
-- A deleted message, or an edit that a later edit replaced, is removed from the log and becomes a
-- tombstone in the overlay. If such an edit is only in the warm tier, the overlay has only
-- `rev`: the seq of the entry that replaced or deleted it.
--
-- key chat         hash    the chat's `seq`, `ts`, `gate` and other fields, and its refs
-- key members      hash    user to "role:joined", with ":<until>m" appended if muted
-- key log          stream  committed entries, entry id "<seq>-0", field: timestamp
-- key over         hash    seq to current state of the entry, JSON
-- key revs         zset    seq of an entry in `over`, score: seq of its last change
-- key backlog      stream  entries that are not persisted yet
-- key undelivered  zset    chats with an unfinished fan-out
-- key uncounted zset  seqs of entries that never count as unread, the newest 500
-- arg epoch        string  current epoch of the partition
-- arg gateway      string  calling gateway
-- arg backlog_max  integer maximum number of entries in the backlog
-- arg reactions_max integer per message
-- arg chat_id      string
-- arg sender       string
-- arg name         bytes   the entry's mid and request digest (`format_name`)
-- arg kind         string  edit, delete, reaction, pin or unpin
-- arg target       integer seq of the message
-- arg body         bytes   new text, or emoji; empty removes the reaction
-- arg tail         bytes   the entry's JSON without seq and ts
-- arg base         bytes   the message's JSON from the warm tier, or empty
-- arg asked        integer the chat's newest seq before `base` was read
-- arg author       string  the user whose message is erased, even if the message has expired or the
--                          sender of the entry is not a member; empty: no erasure
-- arg ref          bytes   field of the ref in `chat`
-- arg readable     string  "1": the message is from an earlier membership period of the sender
-- arg target_ref   string  `ref` of the message; empty: change whichever message has the seq
--
-- returns {code, ...}
--   1 seq ts size  committed; the caller does the fan-out. `size`: bytes of the overlay's entry,
--                  0 if the message is unchanged
--   3 place    the ref is known; seq, ts, mid and request digest of its entry
--              (`parse_ref_record`)
--   4          the chat is not loaded in this epoch: load it
--   5          the sender is not a member
--   6          the backlog is full
--   7 head     the message is not in the hot tier: read it from the warm tier, then call again
--              with `asked` = head
--   8          the sender is not allowed to change this message in this way
--   9 rev      the message is deleted, by the entry `rev`, or has expired (`rev` is 0)
--   10         the message has the maximum number of reactions
--   11         the chat has no such message, or another one has the seq
--   12 why     the sender is not allowed to write (`chatserver.domain.write_restrictions`)
local call, format, sub = redis.call, string.format, string.sub
local epoch, sender, kind, target = ARGV[1], ARGV[6], ARGV[8], ARGV[9]
local author, is_erasure = ARGV[14], ARGV[14] ~= ''
local chat_key, log, over, revs = KEYS[1], KEYS[3], KEYS[4], KEYS[5]

local first = {'seq', 'ts', 'chat', 'mid', 'sender', 'ref', 'kind', 'body'}
local is_first = {}
for _, name in ipairs(first) do is_first[name] = true end
-- A tombstone keeps these fields.
local kept = {'seq', 'ts', 'chat', 'mid', 'sender', 'ref', 'kind', 'target', 'expires_at'}

local function text_of(value)
  -- cjson rounds large numbers such as timestamps.
  if type(value) == 'number' then return format('%.0f', value) end
  return cjson.encode(value)
end

local function encode(entry)
  local fields = {}
  for _, name in ipairs(first) do
    fields[#fields + 1] = '"' .. name .. '":' .. text_of(entry[name])
  end
  for name, value in pairs(entry) do
    if not is_first[name] then
      fields[#fields + 1] = cjson.encode(name) .. ':' .. text_of(value)
    end
  end
  return '{' .. table.concat(fields, ',') .. '}'
end

local function tombstone_of(entry, rev)
  local left = {body = '', deleted = true, rev = rev}
  for _, name in ipairs(kept) do left[name] = entry[name] end
  return left
end

local function read_log(seq_text)
  local found = call('XRANGE', log, seq_text .. '-0', seq_text .. '-0')[1]
  if not found then return nil end
  local blob = found[2][2]
  return '{"seq":' .. seq_text .. ',"ts":' .. found[2][1] .. ','
    .. sub(blob, string.find(blob, '\n', 1, true) + 1)
end

local is_pin = kind == 'pin' or kind == 'unpin'
local ref = ARGV[15]
local h = call('HMGET', chat_key, 'seq', 'ts', 'gate', 'history', 'kind', ref)
if not h[3] or sub(h[3], 1, #epoch + 1) ~= epoch .. ':' then return {4} end
-- A retry is acked even if the sender has left the chat.
if h[6] then return {3, h[6]} end
local role = call('HGET', KEYS[2], sender)
if not role and not is_erasure then return {5} end
local joined, until_s
role, joined, until_s = string.match(role or '', '^([^:]*):?(%d*):?(%d*)')
if call('XLEN', KEYS[6]) >= tonumber(ARGV[3]) then return {6} end

local head = tonumber(h[1])
if tonumber(target) > head then return {11} end
-- The sender joined after this message was sent, so they are not allowed to see it.
if not is_erasure and ARGV[16] ~= '1' and h[4] ~= 'all'
    and tonumber(target) < (tonumber(joined) or 0) then
  return {11}
end
local json = call('HGET', over, target) or read_log(target)
if not json then
  -- `base` is outdated if the message was changed after `asked`. A change whose entry is still in
  -- the log is also in the overlay. So if the log has every entry after `asked`, there was no such
  -- change.
  local oldest = call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  local asked = tonumber(ARGV[13])
  local is_base_current = head == asked
    or (oldest and tonumber(string.match(oldest[1], '^%d+')) <= asked + 1)
  if ARGV[12] == '' or not is_base_current then return {7, head} end
  json = ARGV[12]
end
local message = cjson.decode(json)
-- If the overlay has a number (`rev`), the target is a replaced edit; only messages can be changed.
if type(message) == 'number' then return {11} end
if ARGV[17] ~= '' and message.ref ~= ARGV[17] then return {11} end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- Users who are not allowed to write can still delete their messages and remove reactions.
if kind == 'edit' or is_pin or (kind == 'reaction' and ARGV[10] ~= '') then
  if string.find(h[3], ':b', #epoch + 2, true) then return {12, 1} end
  if string.find(h[3], ':e', #epoch + 2, true) then return {12, 4} end
  local is_muted = until_s == '0' or (until_s ~= '' and tonumber(until_s) * 1000000 > now)
  if is_muted and role == 'member' then return {12, 2} end
end
local reactions = message.reactions or {}
if message.kind == 'edit' or message.kind == 'delete' or message.kind == 'reaction'
    or message.kind == 'member' or message.kind == 'update'
    or message.kind == 'pin' or message.kind == 'unpin' then
  return {11}
elseif message.deleted or (not is_erasure and message.expires_at
    and message.expires_at * 1000000 <= now) then
  return {9, message.deleted and message.rev or 0}
elseif is_erasure then
  if message.sender ~= author then return {8} end
elseif kind == 'edit' and message.sender ~= sender then
  return {8}
elseif kind == 'delete' and message.sender ~= sender and role ~= 'owner' and role ~= 'admin' then
  return {8}
elseif is_pin and h[5] == 'group' and role ~= 'owner' and role ~= 'admin' then
  return {8}
elseif kind == 'reaction' and ARGV[10] ~= '' and not reactions[sender] then
  local count = 0
  for _ in pairs(reactions) do count = count + 1 end
  if count >= tonumber(ARGV[4]) then return {10} end
end

local seq, ts = head + 1, tonumber(h[2]) + 1
if now > ts then ts = now end
local seq_text, ts_text = format('%d', seq), format('%.0f', ts)
local fields = {'seq', seq_text, 'ts', ts_text, ref, struct.pack('>I5I7', seq, ts) .. ARGV[7]}
if sub(h[3], -2) ~= ':p' then
  fields[7], fields[8], fields[9], fields[10] = 'gate', h[3] .. ':p', 'done', h[1]
end

-- Write the new state of the message. If it was edited before, write a tombstone for that edit.
local tail, replaced_ts = ARGV[11], 0
local last_edit = (kind == 'edit' or kind == 'delete') and message.edited_seq
local edit_text = last_edit and format('%d', last_edit)
local edit = last_edit and read_log(edit_text)
-- `is_other`: Redis lost the edit, and another entry now has its seq.
local is_other = edit and cjson.decode(edit).ts ~= message.edited_ts
if last_edit and not is_other then
  replaced_ts = message.edited_ts
  call('HSET', over, edit_text, edit and encode(tombstone_of(cjson.decode(edit), seq)) or seq_text)
  call('ZADD', revs, seq_text, edit_text)
  call('XDEL', log, edit_text .. '-0')
end
if kind == 'edit' then
  message.body, message.edited_ts, message.edited_seq, message.rev = ARGV[10], ts, seq, seq
  if message.expires_at then
    tail = sub(tail, 1, -2) .. ',"expires_at":' .. text_of(message.expires_at) .. '}'
  end
elseif kind == 'delete' then
  message = tombstone_of(message, seq)
  call('XDEL', log, target .. '-0')
  call('ZADD', KEYS[8], target, target)
elseif kind == 'reaction' then
  reactions[sender] = ARGV[10] ~= '' and ARGV[10] or nil
  message.reactions = next(reactions) and reactions or nil
  message.rev = seq
end
local changed = ''
if not is_pin then
  changed = encode(message)
  call('HSET', over, target, changed)
  call('ZADD', revs, seq_text, target)
end

call('XADD', log, seq_text .. '-0', ts_text, '\n' .. tail)
-- The persist worker finds the items of the changed message and of the previous edit by these
-- timestamps.
local place = format(' %.0f %.0f\n', message.ts, replaced_ts)
call('XADD', KEYS[6], '*', 'g', ARGV[2], seq_text .. ':' .. ts_text, place .. tail)
call('ZADD', KEYS[8], seq_text, seq_text)
call('ZREMRANGEBYRANK', KEYS[8], 0, -501)
call('HSET', chat_key, unpack(fields))
call('ZADD', KEYS[7], 'NX', format('%.0f', now / 1000), ARGV[5])
return {1, seq, ts, #changed}
