#!lua
-- Commits a batch of messages: gives each its place in its chat, once per client reference, and
-- appends it to the inboxes of recipients who live in this partition.
--
-- The hottest script there is. Numbers become text once, by %d: what redis.call does with a Lua
-- number costs three times as much. What is shared is read once and written once a batch: heads of
-- chats, heads of inboxes (one hash), where users are (one hash).
--
-- key backlog      stream   what is not yet persisted; one entry per call
-- key checkpoint   hash     `waiting`: how many messages the backlog holds
-- key undelivered  zset     chats with an unfinished fan-out
-- key seqs         hash     user to head of the inbox
-- key where        hash     user to gateways, comma separated
-- arg epoch        string   the current life of the hot tier
-- arg gateway      string   who asks; it serves its own sessions without being told
-- arg ref_ttl_s    integer  how long a retry is recognised
-- arg backlog_max  integer  refuse when so many messages wait
-- arg inbox_max    integer  events kept per inbox
-- arg chat_backlog_max integer refuse when so many messages of one chat wait
-- arg asked        integer  messages in this call
-- item key chat     hash    head of the chat
-- item key members  hash    user to "role:joined", with ":<until>m" behind it if muted
-- item key log      stream  committed messages, entry id "<seq>-0", field: timestamp
-- item key refs_even hash   reference to place, of the even generations
-- item key refs_odd hash    the same of the odd ones
-- item arg chat_id  string
-- item arg phase    integer seconds by which the chat's generations begin earlier
-- item arg gate     string  "epoch:version" that the recipients were taken from
-- item arg recipients integer  so many inboxes follow; -1: a large chat, its watchers follow
--   more key inbox  stream  references to messages, entry id "<seq>-0", field: chat
--   more key watchers zset  gateways with sessions of the chat, score: expiry
-- item arg messages integer so many follow:
--   more arg ref    bytes   digest of sender and reference
--   more arg sender string
--   more arg listed string  "1": a member who may write, according to the gate; "s": the system user,
--                           who need be no member; with ":<seq>" behind it the message it replies to
--   more arg name   bytes   the rest of its place, if it is new (`format_name`)
--   more arg blob   bytes   "receiver\n" and the message's JSON without seq and ts
--
-- returns a flat list; for each chat 0 if it is not open in this epoch, or its messages were made
-- without knowing when they end (load it), or 1 and then for each of its messages one of
--   1 seq ts   committed and in every inbox
--   2 seq ts   committed, but not delivered: the recipients were out of date or elsewhere, or an
--              earlier message is pending
--   3 place    known reference (`parse_place`)
--   5          the sender is not a member, and the reference is not known
--   6          the backlog is full
--   8          too much of this chat waits in the backlog
--   9          the chat has no message that this one could reply to
--   7 why ms   the sender may not write (`chatserver.domain.moderation`), for so long or 0
-- and, if one of them is in every inbox: inbox seq of the first such for each recipient in turn
-- (the others follow it), then 0, or 1 and for each recipient the gateways where that user is, or 0
-- if there is none but the caller. A large chat has no inboxes: gateways that watch it, or 0
local call, format, sub, match = redis.call, string.format, string.sub, string.match
local epoch, gateway, ref_ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local inbox_max, chat_backlog_max, asked = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local seqs_key, where_key = KEYS[4], KEYS[5]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- counted before they are taken; what was not taken is given back at the end
local is_full = call('HINCRBY', KEYS[2], 'waiting', asked) > tonumber(ARGV[4])
local out, o, committed, c = {}, 0, {'g', gateway}, 2
local READ_MAX = 4000 -- values that unpack can take

-- recipients, each once: their names, heads and places
local names, count, seqs, where, number_of, who = {}, 0, {}, {}, {}, {}
local name_at = #seqs_key + 3 -- "{pN}:seqs" has two characters less than "{pN}:inbox:"
local k, a = 6, 8
while a <= #ARGV do
  local recipients, messages = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  if recipients == -1 then k = k + 1 end
  for i = k + 5, k + 4 + recipients do
    local name = sub(KEYS[i], name_at)
    local number = number_of[name]
    if not number then
      count = count + 1
      number, names[count] = count, name
      number_of[name] = count
    end
    who[i] = number
  end
  k = k + 5 + math.max(recipients, 0)
  a = a + 5 + 5 * messages
end
for first = 1, count, READ_MAX do
  local last = math.min(first + READ_MAX - 1, count)
  local heads = call('HMGET', seqs_key, unpack(names, first, last))
  local found = call('HMGET', where_key, unpack(names, first, last))
  for i = first, last do
    seqs[i] = tonumber(heads[i - first + 1]) or 0
    local far = found[i - first + 1]
    -- the caller serves its own sessions: what is left are the others
    where[i] = far and far ~= gateway and far or 0
  end
end

local function push(chat_id, seq_text, first, last)
  for i = first, last do
    local n = who[i]
    local seq = seqs[n] + 1
    seqs[n] = seq
    call('XADD', KEYS[i], format('%d-0', seq), chat_id, seq_text)
    if seq % 16 == 0 and seq > inbox_max then
      call('XTRIM', KEYS[i], 'MINID', format('%d-0', seq - inbox_max + 1))
    end
  end
end

-- says where the recipients' copies begin, and who has to be told elsewhere
local function report(first, last, pushed)
  local is_far = false
  for i = first, last do
    o = o + 1
    out[o] = seqs[who[i]] - pushed + 1
    if where[who[i]] ~= 0 then is_far = true end
  end
  o = o + 1
  out[o] = is_far and 1 or 0
  if is_far then
    for i = first, last do
      o = o + 1
      out[o] = where[who[i]]
    end
  end
  return is_far
end

-- the gateways, other than the caller, that watch a large chat
local function watching(key)
  local far = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', key, format('%.0f', now / 1000), '+inf')) do
    if name ~= gateway then far[#far + 1] = name end
  end
  return #far > 0 and table.concat(far, ',') or 0
end

-- why one who is no more than a member may not write, and for how many ms (0: no telling)
local function restraint_of(standing, strict, chat_key, sender, spoke)
  if strict == 'b' then return 1, 0 end
  if strict == 'e' then return 4, 0 end
  local role, until_s = match(standing, '^(%a*):%d*:?(%d*)')
  if role ~= 'member' then return nil end
  if until_s == '0' then return 2, 0 end
  local left = until_s ~= '' and tonumber(until_s) * 1000000 - now or 0
  if left > 0 then return 2, math.ceil(left / 1000) end
  if strict ~= '' then
    local last = spoke[sender] or tonumber(call('HGET', chat_key, 'w:' .. sender) or 0)
    left = last + tonumber(sub(strict, 2)) * 1000000 - now
    if left > 0 then return 3, math.ceil(left / 1000) end
  end
  return nil
end

k, a = 6, 8
while a <= #ARGV do
  local chat_key, chat_id, gate = KEYS[k], ARGV[a], ARGV[a + 2]
  local recipients, messages = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local is_large = recipients == -1
  local first, last = k + 5, k + 4 + math.abs(recipients)
  local head = call('HMGET', chat_key, 'seq', 'ts', 'gate', 'refs', 'stored')
  -- not by the given gate: it may be of the same old epoch as the chat
  local is_open = head[3] and sub(head[3], 1, #epoch + 1) == epoch .. ':'
  -- who takes a chat's retention from an older gate would keep a message for ever
  if is_open and head[3] ~= gate
      and match(head[3], ':r%d+', #epoch + 2) ~= match(gate, ':r%d+') then
    is_open = false
  end
  o = o + 1
  out[o] = is_open and 1 or 0
  if is_open then
    local seq, ts, is_current = tonumber(head[1]), tonumber(head[2]), head[3] == gate
    local is_inline = is_current and recipients ~= 0
    local seq_max = (tonumber(head[5]) or 0) + chat_backlog_max
    local pushed, pending, fields = 0, 0, {'seq', '', 'ts', ''}
    -- A generation of references lasts as long as one is to be remembered: with the one before it,
    -- each is remembered for at least that long.
    local phase = tonumber(ARGV[a + 1])
    local generation = math.floor((time[1] + phase) / ref_ttl_s)
    local refs, refs_before = KEYS[k + 3 + generation % 2], KEYS[k + 4 - generation % 2]
    local strict, spoke = nil, nil -- what the gate demands of who is looked up; who wrote when
    for m = 0, messages - 1 do
      local at = a + 5 + 5 * m
      local ref, sender = ARGV[at], ARGV[at + 1]
      local listed, reply_to = ARGV[at + 2], 0
      local is_listed, standing, why, wait_ms = is_current and listed == '1', nil, nil, nil
      if #listed > 1 or listed == 's' then
        local flag = sub(listed, 1, 1)
        is_listed = flag == 's' or (is_current and flag == '1')
        reply_to = tonumber(sub(listed, 3)) or 0
      end
      if not (is_listed or is_full) then
        standing = call('HGET', KEYS[k + 1], sender)
        strict = strict or match(head[3], ':([bes]%d*)', #epoch + 2) or ''
        -- a value ends with a letter, not a digit, if there is something to look at
        if standing and (strict ~= '' or string.byte(standing, -1) > 57) then
          spoke = spoke or {}
          why, wait_ms = restraint_of(standing, strict, chat_key, sender, spoke)
        end
      end
      if is_full then
        o = o + 1
        out[o] = 6
      elseif not (is_listed or standing) then
        -- a retry is acked even if the sender has left the chat
        local place = call('HGET', refs, ref) or call('HGET', refs_before, ref)
        out[o + 1], out[o + 2] = place and 3 or 5, place or nil
        o = o + (place and 2 or 1)
      elseif seq >= seq_max then
        o = o + 1
        out[o] = 8
      elseif why or reply_to > seq then
        local place = call('HGET', refs, ref) or call('HGET', refs_before, ref)
        if place then
          out[o + 1], out[o + 2] = 3, place
          o = o + 2
        elseif not why then
          o = o + 1
          out[o] = 9
        else
          out[o + 1], out[o + 2], out[o + 3] = 7, why, wait_ms
          o = o + 3
        end
      else
        local new_seq, new_ts = seq + 1, ts + 1
        if now > new_ts then new_ts = now end
        local seq_text, ts_text = format('%d', new_seq), format('%.0f', new_ts)
        local place = seq_text .. ':' .. ts_text
        local known = call('HGET', refs_before, ref)
        if not known
            and call('HSETNX', refs, ref, struct.pack('>I5I7', new_seq, new_ts) .. ARGV[at + 3]) == 0 then
          known = call('HGET', refs, ref)
        end
        if known then
          out[o + 1], out[o + 2] = 3, known
          o = o + 2
        else
          seq, ts = new_seq, new_ts
          call('XADD', KEYS[k + 2], seq_text .. '-0', ts_text, ARGV[at + 4])
          committed[c + 1], committed[c + 2] = place, ARGV[at + 4]
          c = c + 2
          if is_inline then
            if not is_large then push(chat_id, seq_text, first, last) end
            pushed = pushed + 1
          else
            pending = pending + 1
          end
          out[o + 1], out[o + 2], out[o + 3] = is_inline and 1 or 2, seq, ts
          o = o + 3
          -- what they sent they have read
          fields[2], fields[4] = seq_text, ts_text
          fields[#fields + 1] = 's:' .. sender
          fields[#fields + 1] = seq_text
          if spoke and strict ~= '' then
            spoke[sender] = ts
            fields[#fields + 1] = 'w:' .. sender
            fields[#fields + 1] = ts_text
          end
        end
      end
    end
    local is_far = false
    if pushed > 0 then
      if is_large then
        o = o + 1
        out[o] = watching(KEYS[first])
        is_far = out[o] ~= 0
      else
        is_far = report(first, last, pushed)
      end
      fields[#fields + 1] = 'done'
      fields[#fields + 1] = fields[2]
    end
    -- inboxes of a message that is pending must be served before those of a later one, or it
    -- would come twice or never: until it is settled, no gate fits
    if pending > 0 and sub(head[3], -2) ~= ':p' then
      fields[#fields + 1] = 'gate'
      fields[#fields + 1] = head[3] .. ':p'
    end
    if pushed + pending > 0 then
      if tonumber(head[4]) ~= generation then
        call('EXPIREAT', refs, format('%d', (generation + 2) * ref_ttl_s - phase))
        fields[#fields + 1] = 'refs'
        fields[#fields + 1] = format('%d', generation)
      end
      call('HSET', chat_key, unpack(fields))
    end
    -- until the inboxes are served and the other gateways told; `settle` takes it away
    if is_far or pending > 0 then call('ZADD', KEYS[3], 'NX', format('%.0f', now / 1000), chat_id) end
  end
  k = last + 1
  a = a + 5 + 5 * messages
end

if c > 2 then
  call('XADD', KEYS[1], '*', unpack(committed))
  local changed, n = {}, 0
  for i = 1, count do
    changed[n + 1], changed[n + 2] = names[i], format('%d', seqs[i])
    n = n + 2
    if n >= READ_MAX or i == count then
      call('HSET', seqs_key, unpack(changed, 1, n))
      n = 0
    end
  end
end
if (c - 2) / 2 < asked then call('HINCRBY', KEYS[2], 'waiting', (c - 2) / 2 - asked) end
return out
