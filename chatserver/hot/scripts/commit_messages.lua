#!lua
-- Commits a batch of messages: assigns each a seq and a timestamp in its chat, once per `ref`, and
-- appends it to the inboxes of recipients in this partition.
--
-- This is the most frequent script. It formats numbers once, with %d: passing a Lua number to
-- redis.call costs three times as much. It reads and writes the hashes `seqs` and `where` once per
-- batch.
--
-- key backlog      stream   entries that are not persisted yet; one entry per call
-- key checkpoint   hash     `waiting`: number of messages in the backlog
-- key undelivered  zset     chats with an unfinished fan-out
-- key seqs         hash     user to newest inbox seq
-- key where        hash     user to gateways, comma separated
-- arg epoch        string   current epoch of the partition
-- arg gateway      string   calling gateway; it notifies its own sessions itself
-- arg ref_ttl_s    integer  TTL of a `ref`
-- arg backlog_max  integer  maximum number of messages in the backlog
-- arg inbox_max    integer  events kept per inbox
-- arg chat_backlog_max integer maximum messages of one chat in the backlog
-- arg asked        integer  messages in this call
-- item key chat     hash    the chat's `seq`, `ts`, `gate` and other fields
-- item key members  hash    user to "role:joined", with ":<until>m" appended if muted
-- item key log      stream  committed messages, entry id "<seq>-0", field: timestamp
-- item key refs_even hash   digest of sender and `ref` to the entry's seq, ts, mid and request
--                           digest (`format_place`)
-- item key refs_odd hash    like `refs_even`; see `phase`
-- item arg chat_id  string
-- item arg phase    integer seconds added to the time: new refs go to `refs_even` if
--                           floor((time + phase) / ref_ttl_s) is even
-- item arg gate     string  "epoch:version" and write policy with which the recipients were read
-- item arg recipients integer  number of inboxes that follow; -1: a large chat, one key
--                              `watchers` follows
--   more key inbox  stream  references to messages. Entry "<seq>-<n>" has n + 1 messages; its field
--                           is the chat, its value the chat seq of the newest (see `push`)
--   more key watchers zset  gateways that are subscribed to the chat, score: expiry
-- item arg messages integer number of messages that follow:
--   more arg ref    bytes   digest of sender and `ref`
--   more arg sender string
--   more arg listed string  "1": a member allowed to write in this chat version; "s": the system user,
--                           which need not be a member; "0": look up the sender; for a
--                           reply, ":<seq>" of the message replied to is appended
--   more arg name   bytes   mid and request digest to store for a new ref (`format_name`)
--   more arg blob   bytes   "receiver\n" and the message's JSON without seq and ts
--
-- returns a flat list. For each chat: 0 if it is not loaded in this epoch, or if the retention in
-- `gate` is outdated; the caller has to load the chat. Else 1, and for each of its messages one of
--   1 seq ts   committed and in every inbox
--   2 seq ts   committed, but not delivered: recipients are outdated or in another partition, or
--              an earlier message is pending
--   3 place    the ref is known; seq, ts, mid and request digest of its entry (`parse_place`)
--   5          the sender is not a member, and the ref is not known
--   6          the backlog is full
--   8          the backlog holds too many messages of this chat
--   9          the target of the reply does not exist in the chat
--   7 why ms   the sender is not allowed to write (`chatserver.domain.write_restrictions`) for
--              `ms`; 0: unknown
-- If any message of the chat has code 1, the codes are followed by
--   for each recipient, the inbox seq of the first message with code 1 (the other messages with
--   code 1 have the next seqs)
--   0 if every recipient is offline or only on the calling gateway, otherwise 1
--   after 1, for each recipient: the other gateways, or 0
-- A large chat has no inboxes: its codes are followed by the subscribed gateways, or 0.
local call, format, sub, match = redis.call, string.format, string.sub, string.match
local epoch, gateway, ref_ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local inbox_max, chat_backlog_max, asked = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local seqs_key, where_key = KEYS[4], KEYS[5]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- Add all messages of the call to `waiting`; the end of the script subtracts those not committed.
local is_full = call('HINCRBY', KEYS[2], 'waiting', asked) > tonumber(ARGV[4])
local out, o, committed, c = {}, 0, {'g', gateway}, 2
local READ_MAX = 4000 -- maximum number of values for unpack

-- Collect the names, newest inbox seqs and gateways of the unique recipients.
local names, count, seqs, where, number_of, who = {}, 0, {}, {}, {}, {}
local name_at = #seqs_key + 3 -- "{pN}:seqs" is two characters shorter than "{pN}:inbox:"
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
    -- The caller notifies its own sessions, so return only other gateways.
    where[i] = far and far ~= gateway and far or 0
  end
end

-- Appends the chat's newest messages to the inboxes. An inbox gets one stream entry for all
-- messages of a call, because XADD is most of the cost of a delivery.
local function push(chat_id, seq_text, first, last, messages)
  for i = first, last do
    local n = who[i]
    local seq = seqs[n] + messages
    seqs[n] = seq
    call('XADD', KEYS[i], format('%d-%d', seq, messages - 1), chat_id, seq_text)
    if seq % 16 < messages and seq > inbox_max then
      call('XTRIM', KEYS[i], 'MINID', format('%d-0', seq - inbox_max + 1))
    end
  end
end

-- returns the first inbox seq of each recipient, and the other gateways to notify
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

-- returns the gateways, other than the caller, that are subscribed to a large chat
local function list_subscribers(key)
  local far = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', key, format('%.0f', now / 1000), '+inf')) do
    if name ~= gateway then far[#far + 1] = name end
  end
  return #far > 0 and table.concat(far, ',') or 0
end

-- returns why a user with role member is not allowed to write, and for how many ms (0: unknown)
local function find_restriction(status, policy, chat_key, sender, sent_ts)
  if policy == 'b' then return 1, 0 end
  if policy == 'e' then return 4, 0 end
  local role, until_s = match(status, '^(%a*):%d*:?(%d*)')
  if role ~= 'member' then return nil end
  if until_s == '0' then return 2, 0 end
  local left = until_s ~= '' and tonumber(until_s) * 1000000 - now or 0
  if left > 0 then return 2, math.ceil(left / 1000) end
  if policy ~= '' then
    local last = sent_ts[sender] or tonumber(call('HGET', chat_key, 'w:' .. sender) or 0)
    left = last + tonumber(sub(policy, 2)) * 1000000 - now
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
  -- Compare with the `epoch` argument: the chat and the `gate` argument may both have an old epoch.
  local is_open = head[3] and sub(head[3], 1, #epoch + 1) == epoch .. ':'
  -- Reject messages whose expiry the caller computed from another retention.
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
    -- New refs are stored in one of two hashes, which alternate every `ref_ttl_s` (a generation).
    -- So each ref is kept for at least `ref_ttl_s`.
    local phase = tonumber(ARGV[a + 1])
    local generation = math.floor((time[1] + phase) / ref_ttl_s)
    local refs, refs_before = KEYS[k + 3 + generation % 2], KEYS[k + 4 - generation % 2]
    local policy, sent_ts = nil, nil -- write policy of the chat; last message time by sender
    for m = 0, messages - 1 do
      local at = a + 5 + 5 * m
      local ref, sender = ARGV[at], ARGV[at + 1]
      local listed, reply_to = ARGV[at + 2], 0
      local is_listed, status, why, wait_ms = is_current and listed == '1', nil, nil, nil
      if #listed > 1 or listed == 's' then
        local flag = sub(listed, 1, 1)
        is_listed = flag == 's' or (is_current and flag == '1')
        reply_to = tonumber(sub(listed, 3)) or 0
      end
      if not (is_listed or is_full) then
        status = call('HGET', KEYS[k + 1], sender)
        policy = policy or match(head[3], ':([bes]%d*)', #epoch + 2) or ''
        -- The value of a muted member in `members` ends with "m".
        if status and (policy ~= '' or string.byte(status, -1) > 57) then
          sent_ts = sent_ts or {}
          why, wait_ms = find_restriction(status, policy, chat_key, sender, sent_ts)
        end
      end
      if is_full then
        o = o + 1
        out[o] = 6
      elseif not (is_listed or status) then
        -- A retry is acked even if the sender has left the chat.
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
            pushed = pushed + 1
          else
            pending = pending + 1
          end
          out[o + 1], out[o + 2], out[o + 3] = is_inline and 1 or 2, seq, ts
          o = o + 3
          -- "s:<sender>" has the sender's newest seq, up to which the sender has read.
          fields[2], fields[4] = seq_text, ts_text
          fields[#fields + 1] = 's:' .. sender
          fields[#fields + 1] = seq_text
          if sent_ts and policy ~= '' then
            sent_ts[sender] = ts
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
        out[o] = list_subscribers(KEYS[first])
        is_far = out[o] ~= 0
      else
        push(chat_id, fields[2], first, last, pushed)
        is_far = report(first, last, pushed)
      end
      fields[#fields + 1] = 'done'
      fields[#fields + 1] = fields[2]
    end
    -- A pending message is committed, but not in the inboxes. It must get there before any later
    -- message; otherwise, it would be delivered twice or never. With ":p", the chat's gate matches
    -- no `gate` argument, so later messages stay pending until the fan-out is finished.
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
    -- The chat stays in `undelivered` until all inboxes have its messages and the other gateways
    -- are notified; then `finish_fan_outs` removes it.
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
