"""Frames about the connection itself and its presence subscriptions."""

from __future__ import annotations

from chatserver.protocol import frames
from chatserver.protocol.request_costs import BASE, ITEMS_PER_TOKEN
from chatserver.requests.operation import declare_session_frame


def _by_users(frame: frames.Watch) -> int:
    return BASE + len(frame.users) // ITEMS_PER_TOKEN


hello = declare_session_frame(frames.Hello, frames.Welcome)
auth = declare_session_frame(frames.Auth, frames.Ok)
state = declare_session_frame(frames.State)
watch = declare_session_frame(frames.Watch, cost=_by_users)
unwatch = declare_session_frame(frames.Unwatch)
