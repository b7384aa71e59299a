"""Frames about the connection and its presence subscriptions, and frames without a request."""

from __future__ import annotations

from chatserver.protocol import frames
from chatserver.protocol.request_costs import BASE, ITEMS_PER_TOKEN
from chatserver.requests.operation import ServerPush, declare_session_frame


def _by_users(frame: frames.Watch) -> int:
    return BASE + len(frame.users) // ITEMS_PER_TOKEN


hello = declare_session_frame(frames.Hello, frames.Welcome)
auth = declare_session_frame(frames.Auth, frames.Ok)
state = declare_session_frame(frames.State)
watch = declare_session_frame(frames.Watch, cost=_by_users)
unwatch = declare_session_frame(frames.Unwatch)

event = ServerPush(frames.Event)
signal = ServerPush(frames.Signal)
invitation_signal = ServerPush(frames.InvitationSignal)
presence_signal = ServerPush(frames.PresenceSignal)
stored = ServerPush(frames.Stored)
too_long = ServerPush(frames.TooLong)
reset = ServerPush(frames.Reset)
error = ServerPush(frames.Error)
bye = ServerPush(frames.Bye)
