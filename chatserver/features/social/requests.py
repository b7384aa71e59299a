"""Signals to followers."""

from __future__ import annotations

from chatserver.features.social.frames import PostSignal
from chatserver.requests.operation import Push

post_signal = Push(PostSignal)
