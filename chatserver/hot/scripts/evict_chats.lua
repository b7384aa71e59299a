#!lua flags=allow-oom
-- Evicts idle chats that are completely in the warm tier.
--
-- A chat is evicted only if it has no pending fan-out or notice, and its last entry is older than
-- `idle_s`. The next access loads it again. A chat that is not evicted is checked again later.
-- Refs that are younger than `ref_ttl_s` stay until then; of a chat with very many fields, all fields
-- stay that do not say that it is loaded.
--
-- key idle         zset  chat to the time (s) of its last recorded activity
-- key undelivered  zset  chats with an unfinished fan-out
-- arg idle_s       integer
-- arg ref_ttl_s    integer
-- item key chat      hash    the chat's `seq`, `ts`, `gate` and other fields, and its refs
-- item key members   hash
-- item key log       stream
-- item key over      hash    current state of changed entries
-- item key revs      zset    last changes of these entries
-- item key uncounted zset  seqs of entries that never count as unread
-- item key expiring  zset    seqs of messages that expire
-- item key turnover  hash    pending notices of joins and leaves
-- item arg chat_id   string
--
-- returns the number of evicted chats
local call = redis.call
local idle_s, ref_ttl_s = tonumber(ARGV[1]), tonumber(ARGV[2])
local FIELDS_MAX = 1000 -- of a chat whose fields are removed one by one
local HEAD = {
  'gate', 'seq', 'ts', 'base', 'done', 'stored', 'dead', 'kind', 'name', 'large', 'turns', 'picture',
  'history', 'changed', 'scan',
}
local now = tonumber(call('TIME')[1])
local evicted, a = 0, 3

-- Removes a chat's fields but the refs, which expire; without refs, removes the chat.
local function remove_head(key)
  if call('HLEN', key) > FIELDS_MAX then
    call('HDEL', key, unpack(HEAD))
    call('EXPIRE', key, ref_ttl_s)
    return
  end
  local flat, fields, has_refs = call('HGETALL', key), {}, false
  local oldest = (now - ref_ttl_s) * 1000000
  for i = 1, #flat, 2 do
    local is_ref = string.sub(flat[i], 1, 1) == '#'
    if is_ref and select(2, struct.unpack('>I5I7', flat[i + 1])) > oldest then
      has_refs = true
    else
      fields[#fields + 1] = flat[i]
    end
  end
  if has_refs then
    call('HDEL', key, unpack(fields))
    call('EXPIRE', key, ref_ttl_s)
  else
    call('UNLINK', key)
  end
end

for k = 3, #KEYS, 8 do
  local chat_id = ARGV[a]
  local head = call('HMGET', KEYS[k], 'seq', 'stored', 'ts', 'gate')
  local since = math.floor((tonumber(head[3]) or 0) / 1000000)
  local is_pending = head[4] and string.sub(head[4], -2) == ':p'
    or call('ZSCORE', KEYS[2], chat_id)
    or call('EXISTS', KEYS[k + 7]) == 1
  if head[1] and (is_pending or tonumber(head[1]) ~= tonumber(head[2] or 0)) then
    call('ZADD', KEYS[1], now, chat_id)
  elseif head[1] and since > now - idle_s then
    call('ZADD', KEYS[1], since, chat_id)
  else
    -- Without a head, the chat is already evicted, and only its refs may be left.
    if since >= now - ref_ttl_s then
      remove_head(KEYS[k])
    elseif head[1] then
      call('UNLINK', KEYS[k])
    end
    for i = 1, 6 do call('UNLINK', KEYS[k + i]) end
    call('ZREM', KEYS[1], chat_id)
    evicted = evicted + 1
  end
  a = a + 1
end
return evicted
