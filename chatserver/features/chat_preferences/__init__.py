"""Chat preferences: a user's own settings for each chat, shared by all of the user's devices.

These are pinned chats, archived chats, muted notifications, chats marked as unread, drafts and
cleared history. Start with `model.py`. `warm.py` reads and writes the DynamoDB items. Changes are
sent to the user's devices as signals.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="chat_preferences",
    requests="chatserver.features.chat_preferences.requests",
    routes=("chatserver.features.chat_preferences.routes:build_chat_preferences_routes",),
)
