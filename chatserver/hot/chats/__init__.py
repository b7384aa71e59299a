"""Per-chat data in Redis: message commits, logs, membership, backlog and eviction.

Start with `group_commit` (message commits) and `chat_log` (reads). `hot_chat_loader` loads chats
from the warm tier, `eviction` removes idle ones, and `backlog` feeds the persist worker.
"""
