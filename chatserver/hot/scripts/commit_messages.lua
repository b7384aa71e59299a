#!lua
-- Commits a batch of messages: assigns each a seq and a timestamp in its chat, once per `ref`, and
-- appends it to the inboxes of recipients in this partition.
--
-- This is the most frequent script, and each redis.call costs 1 to 3 us. The usual message takes
-- one call to read its chat, one to write it, and one per stream. Numbers are formatted with %d:
-- passing a Lua number to redis.call costs three times as much.
--
-- key backlog      stream   entries that are not persisted yet; one entry per call
-- key undelivered  zset     chats with an unfinished fan-out
-- key where        hash     user to gateways, comma separated
-- arg epoch        string   current epoch of the partition
-- arg gateway      string   calling gateway; it notifies its own sessions itself
-- arg backlog_max  integer  maximum number of entries in the backlog, or empty: not checked
-- arg inbox_max    integer  events kept per inbox
-- arg chat_backlog_max integer maximum messages of one chat in the backlog
-- item key chat     hash    the chat's `seq`, `ts`, `gate` and other fields, and its refs: "#" and
--                           digest of sender and `ref`, to the entry's seq, ts, mid and request
--                           digest (`format_ref_record`)
-- item key members  hash    user to "role:joined", with ":<until>m" appended if muted
-- item key log      stream  committed messages, entry id "<seq>-0", field: timestamp
-- item arg chat_id  string
-- item arg gate     string  "epoch:version" and write policy with which the recipients were read
-- item arg recipients integer  number of inboxes that follow; -1: a large chat, one key
--                              `watchers` follows
--   more key inbox  stream  references to messages. The field is the chat. Entry "0-<seq>" has one
--                           message, or several if its value is "<first>-<last>" (chat seqs)
--   more key watchers zset  gateways that are subscribed to the chat, score: expiry
-- item arg messages integer number of messages that follow:
--   more arg ref    bytes   field of the ref in `chat`
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
--   3 place    the ref is known; seq, ts, mid and request digest of its entry (`parse_ref_record`)
--   5          the sender is not a member, and the ref is not known
--   6          the backlog is full
--   8          the backlog holds too many messages of this chat
--   9          the target of the reply does not exist in the chat
--   7 why ms   the sender is not allowed to write (`chatserver.domain.write_restrictions`) for
--              `ms`; 0: unknown
-- If any message of the chat has code 1, the codes are followed by
--   for each recipient, the inbox entry id of the first message with code 1 (the other messages
--   with code 1 have the next seqs)
--   0 if every recipient is offline or only on the calling gateway, otherwise 1
--   after 1, for each recipient: the other gateways, or 0
-- A large chat has no inboxes: its codes are followed by the subscribed gateways, or 0.
local call, format, sub, match = redis.call, string.format, string.sub, string.match
local epoch, gateway = ARGV[1], ARGV[2]
local inbox_max, chat_backlog_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local is_full = ARGV[3] ~= '' and call('XLEN', KEYS[1]) >= tonumber(ARGV[3])
local out, o, committed, c = {}, 0, {'g', gateway}, 2
local READ_MAX = 4000 -- maximum number of values for unpack
local name_at = #KEYS[3] + 2 -- "{pN}:where" is one character shorter than "{pN}:inbox:"

local k, a = 4, 6
while a <= #ARGV do
  local chat_key, chat_id, gate = KEYS[k], ARGV[a], ARGV[a + 1]
  local recipients, messages = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local is_large = recipients == -1
  local first, last = k + 3, k + 2 + (is_large and 1 or recipients)
  local head
  if messages == 1 then
    head = call('HMGET', chat_key, 'seq', 'ts', 'gate', 'stored', ARGV[a + 4])
  else
    local asked = {'seq', 'ts', 'gate', 'stored'}
    for m = 1, messages do asked[4 + m] = ARGV[a - 1 + 5 * m] end
    head = call('HMGET', chat_key, unpack(asked))
  end
  local is_current = head[3] == gate
  -- Compare with the `epoch` argument: the chat and the `gate` argument may both have an old epoch.
  local is_open = head[3] and sub(head[3], 1, #epoch + 1) == epoch .. ':'
  -- Reject messages whose expiry the caller computed from another retention.
  if is_open and not is_current
      and match(head[3], ':r%d+', #epoch + 2) ~= match(gate, ':r%d+') then
    is_open = false
  end
  o = o + 1
  out[o] = is_open and 1 or 0
  if is_open then
    local seq, ts = tonumber(head[1]), tonumber(head[2])
    local is_inline = is_current and recipients ~= 0
    local seq_max = (tonumber(head[4]) or 0) + chat_backlog_max
    local before, seq_text, ts_text = seq, nil, nil
    local fields, f = {}, 0
    local policy, sent_ts = nil, nil -- write policy of the chat; last message time by sender
    local new_refs = messages > 1 and {} or nil
    for m = 1, messages do
      local at = a - 1 + 5 * m
      local ref, sender, listed = ARGV[at], ARGV[at + 1], ARGV[at + 2]
      local known, reply_to = head[4 + m] or (new_refs and new_refs[ref]), 0
      local is_listed, status, why, wait_ms = is_current and listed == '1', nil, nil, nil
      if not known then
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
            local role, until_s = match(status, '^(%a*):%d*:?(%d*)')
            if policy == 'b' or policy == 'e' then
              why, wait_ms = policy == 'b' and 1 or 4, 0
            elseif role == 'member' and until_s == '0' then
              why, wait_ms = 2, 0
            elseif role == 'member' then
              local left = until_s ~= '' and tonumber(until_s) * 1000000 - now or 0
              if left > 0 then
                why = 2
              elseif policy ~= '' then
                sent_ts = sent_ts or {}
                local sent = sent_ts[sender] or tonumber(call('HGET', chat_key, 'w:' .. sender) or 0)
                left = sent + tonumber(sub(policy, 2)) * 1000000 - now
                why = left > 0 and 3 or nil
              end
              wait_ms = math.ceil(left / 1000)
            end
          end
        end
      end
      if known then -- a retry is acked even if the sender has left the chat.
        out[o + 1], out[o + 2] = 3, known
        o = o + 2
      elseif is_full then
        o = o + 1
        out[o] = 6
      elseif not (is_listed or status) then
        o = o + 1
        out[o] = 5
      elseif seq >= seq_max then
        o = o + 1
        out[o] = 8
      elseif why then
        out[o + 1], out[o + 2], out[o + 3] = 7, why, wait_ms
        o = o + 3
      elseif reply_to > seq then
        o = o + 1
        out[o] = 9
      else
        seq, ts = seq + 1, ts + 1
        if now > ts then ts = now end
        seq_text, ts_text = format('%d', seq), format('%.0f', ts)
        local record = struct.pack('>I5I7', seq, ts) .. ARGV[at + 3]
        call('XADD', KEYS[k + 2], seq_text .. '-0', ts_text, ARGV[at + 4])
        committed[c + 1], committed[c + 2] = seq_text .. ':' .. ts_text, ARGV[at + 4]
        c = c + 2
        out[o + 1], out[o + 2], out[o + 3] = is_inline and 1 or 2, seq, ts
        o = o + 3
        -- "s:<sender>" has the sender's newest seq, up to which the sender has read.
        fields[f + 1], fields[f + 2] = ref, record
        fields[f + 3], fields[f + 4] = 's:' .. sender, seq_text
        f = f + 4
        if new_refs then new_refs[ref] = record end
        if sent_ts and policy ~= '' then
          sent_ts[sender] = ts
          fields[f + 1], fields[f + 2] = 'w:' .. sender, ts_text
          f = f + 2
        end
      end
    end
    if seq > before then
      local is_far = false
      if is_inline and is_large then
        local far = {}
        local watchers = call('ZRANGEBYSCORE', KEYS[first], format('%.0f', now / 1000), '+inf')
        for _, name in ipairs(watchers) do
          if name ~= gateway then far[#far + 1] = name end
        end
        is_far = #far > 0
        o = o + 1
        out[o] = is_far and table.concat(far, ',') or 0
      elseif is_inline then
        -- An inbox gets at most two entries, because XADD is most of the cost of a delivery: Redis
        -- numbers the first message, so the numbers of the others are known.
        local count, text, others, names = seq - before, seq_text, nil, {}
        if count > 1 then
          text = format('%d', before + 1)
          others = count == 2 and seq_text or format('%d-%d', before + 2, seq)
        end
        for i = first, last do
          names[i - first + 1] = sub(KEYS[i], name_at)
          local id = call('XADD', KEYS[i], '0-*', chat_id, text)
          o = o + 1
          out[o] = id
          if others or sub(id, -1) == '0' then -- trim about every tenth entry
            local newest = tonumber(sub(id, 3)) + count - 1
            if others then call('XADD', KEYS[i], format('0-%d', newest), chat_id, others) end
            if newest > inbox_max then
              call('XTRIM', KEYS[i], 'MINID', format('0-%d', newest - inbox_max + 1))
            end
          end
        end
        -- The caller notifies its own sessions, so return only other gateways.
        o = o + 1
        out[o] = 0
        local far = {}
        for from = 1, recipients, READ_MAX do
          local upto = math.min(from + READ_MAX - 1, recipients)
          local found = call('HMGET', KEYS[3], unpack(names, from, upto))
          for n = 1, upto - from + 1 do
            local names_of = found[n]
            if names_of and names_of ~= gateway then
              is_far, far[from + n - 1] = true, names_of
            end
          end
        end
        if is_far then
          out[o] = 1
          for n = 1, recipients do out[o + n] = far[n] or 0 end
          o = o + recipients
        end
      elseif sub(head[3], -2) ~= ':p' then
        -- A pending message is committed, but not in the inboxes. It must get there before any
        -- later message; otherwise, it would be delivered twice or never. With ":p", the chat's
        -- gate matches no `gate` argument, so later messages stay pending until the fan-out is
        -- finished. `done`: seq up to which nothing is pending.
        fields[f + 1], fields[f + 2] = 'gate', head[3] .. ':p'
        fields[f + 3], fields[f + 4] = 'done', format('%d', before)
        f = f + 4
      end
      fields[f + 1], fields[f + 2], fields[f + 3], fields[f + 4] = 'seq', seq_text, 'ts', ts_text
      call('HSET', chat_key, unpack(fields))
      -- The chat stays in `undelivered` until all inboxes have its messages and the other gateways
      -- are notified; then `finish_fan_outs` removes it.
      if is_far or not is_inline then
        call('ZADD', KEYS[2], 'NX', format('%.0f', now / 1000), chat_id)
      end
    end
  end
  k = last + 1
  a = a + 4 + 5 * messages
end

if c > 2 then call('XADD', KEYS[1], '*', unpack(committed)) end
return out
