"""Pinned messages: a bounded list per chat, which managers change and all members see.

Start with `service.py`. `warm.py` has the DynamoDB items. Pinning also adds an entry to the chat
(`chatserver.service.messaging.message_changes`), which notifies the members in order.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="pins",
    sample_items="chatserver.features.pins.sample_items:sample_items",
    routes=("chatserver.features.pins.routes:build_pins_routes",),
    ports={"release_pin": "chatserver.features.pins.container:release_pin"},
)
