"""Frames of ``chat.v1``: the types that the core sends and receives.

Each WebSocket text message is one JSON object, with ``type`` as its first field. Decoding checks
types, bounds and ids; unknown fields are ignored, and unknown types are rejected. The client
numbers its requests (``id``), and a response has its request's ``id``. In an event, ``seq`` is the
position in the user's inbox, and ``cs`` the position in the chat. Both count 1, 2, 3 … without
gaps. Features add frames of their own (`chatserver.requests.registry`).
"""


# ruff: noqa: F403  # one name, `frames`, for all types of the protocol

from chatserver.protocol.frames.client_frames import *
from chatserver.protocol.frames.fields import *
from chatserver.protocol.frames.limits import *
from chatserver.protocol.frames.server_frames import *
from chatserver.protocol.frames.values import *
