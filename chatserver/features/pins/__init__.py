"""Pinned messages: a bounded list per chat. In a group, only owners and admins can change it.

Start with `service.py`. `warm.py` has the DynamoDB items. All members see the list. Pinning a
message also adds an entry to the chat (`chatserver.service.messaging.message_changes`), so members
see changes to the list in order with the messages.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="pins",
    routes=("chatserver.features.pins.routes:build_pins_routes",),
    ports={"release_pin": "chatserver.features.pins.container:release_pin"},
)
