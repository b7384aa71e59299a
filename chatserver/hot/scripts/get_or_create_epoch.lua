#!lua flags=allow-oom
-- Returns the epoch of a partition. If another Redis created the stored epoch, creates a new one,
-- unless the partition moved from that Redis without data loss. Changes nothing if the partition is
-- blocked, belongs to another tenant, or has another partition count.
--
-- An epoch is a ULID, and later epochs are greater. Its time is from the clock of this Redis, or 1
-- ms after the previous epoch if that is later. Process clocks are not used, because they may
-- differ.
--
-- The hash `where` gets a field with a long name, which no user has. Redis therefore stores it as a
-- hash table. In a listpack of up to 512 entries, a lookup would scan all entries.
--
-- key epoch       hash    epoch, replid, partitions, tenant; blocked: why it must not be used
-- key where       hash    user to gateways, comma separated
-- arg replid      string  replication id of this Redis
-- arg came_from   string  replication id from which the partition moved without loss, or empty
-- arg suffix      string  random part of a new epoch
-- arg partitions  integer partition count of the caller
-- arg tenant      string  tenant of the caller, or empty
--
-- returns {epoch, partitions, tenant, blocked}
local call, sub, floor = redis.call, string.sub, math.floor
local LONG_FIELD = '-- longer than hash-max-listpack-value, which is 64 bytes by default --'
local DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

-- returns the time in the first ten characters of a ULID, in ms since 1970; 0 if it is not a ULID
local function time_of(ulid)
  local ms = 0
  for i = 1, 10 do
    local digit = string.find(DIGITS, sub(ulid, i, i), 1, true)
    if not digit or i > #ulid then return 0 end
    ms = ms * 32 + digit - 1
  end
  return ms
end

local function format_time(ms)
  local text = ''
  for _ = 1, 10 do
    local digit = ms % 32
    text = sub(DIGITS, digit + 1, digit + 1) .. text
    ms = floor(ms / 32)
  end
  return text
end

local had = call('HMGET', KEYS[1], 'epoch', 'replid', 'partitions', 'tenant', 'blocked')
local tenant = had[4] or ARGV[5]
local is_other = tenant ~= ARGV[5] or (had[3] and had[3] ~= ARGV[4])
if had[5] or is_other then
  return {had[1] or '', tonumber(had[3] or ARGV[4]), tenant, had[5] or ''}
end
if not had[4] then call('HSET', KEYS[1], 'tenant', tenant) end
if had[1] and had[2] == ARGV[1] then return {had[1], tonumber(had[3]), tenant, ''} end
local epoch
if had[1] and ARGV[2] ~= '' and had[2] == ARGV[2] then
  epoch = had[1]
else
  local time = call('TIME')
  local ms = time[1] * 1000 + floor(time[2] / 1000)
  epoch = format_time(math.max(ms, time_of(had[1] or '') + 1)) .. ARGV[3]
end
call('HSET', KEYS[2], LONG_FIELD, '')
call('HSET', KEYS[1], 'epoch', epoch, 'replid', ARGV[1], 'partitions', ARGV[4])
return {epoch, tonumber(ARGV[4]), tenant, ''}
