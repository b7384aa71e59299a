"""Per-chat data in Redis: message commits, logs, membership, backlog and eviction.

Start with `group_commit` (message commits) and `chat_log` (reads). `hot_chat_writer` writes chats
from the warm tier, `eviction` removes idle ones, and `persist_backlog` feeds the persist worker.
"""
