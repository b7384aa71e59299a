"""Signals to followers."""

from __future__ import annotations

from chatserver.features.social.frames import PostSignal
from chatserver.requests.operation import ServerPush

post_signal = ServerPush(PostSignal)
