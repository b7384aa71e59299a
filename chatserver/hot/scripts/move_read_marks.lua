#!lua
-- Moves a user's read and received marks in a chat forward, never back. The caller limits them to
-- the chat's newest seq.
--
-- key box      hash    user state: chats and read marks
-- key backlog  stream  entries that are not persisted yet
-- arg chat_id  string
-- arg user     string
-- arg read     integer 0: unchanged
-- arg received integer 0: unchanged
-- arg own      integer newest message of the user, which counts as read
--
-- returns {read, received}: the marks of the last call that moved one; or nothing if the chat is not
-- in the user's list
local call = redis.call
local chat = ARGV[1]
local box = call('HMGET', KEYS[1], 'c:' .. chat, 'r:' .. chat, 'd:' .. chat)
if not box[1] then return false end
local stored_read, received = tonumber(box[2]) or 0, tonumber(box[3]) or 0
local read = math.max(stored_read, tonumber(ARGV[5]))
local new_read = math.max(read, tonumber(ARGV[3]))
local new_received = math.max(received, new_read, tonumber(ARGV[4]))
if new_read == read and new_received == received then return {stored_read, received} end
call('HSET', KEYS[1], 'r:' .. chat, new_read, 'd:' .. chat, new_received)
call('XADD', KEYS[2], '*', 'c', chat, 'u', ARGV[2], 'r', new_read, 'd', new_received)
return {new_read, new_received}
