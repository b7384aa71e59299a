"""Frames about the connection and its presence subscriptions, and frames without a request."""

from __future__ import annotations

from chatserver.protocol import frames
from chatserver.protocol.request_costs import BASE, ITEMS_PER_TOKEN
from chatserver.requests.operation import Push, declare_session_frame


def _by_users(frame: frames.Watch) -> int:
    return BASE + len(frame.users) // ITEMS_PER_TOKEN


hello = declare_session_frame(frames.Hello, frames.Welcome)
auth = declare_session_frame(frames.Auth, frames.Ok)
state = declare_session_frame(frames.State)
watch = declare_session_frame(frames.Watch, cost=_by_users)
unwatch = declare_session_frame(frames.Unwatch)

event = Push(frames.Event)
signal = Push(frames.Signal)
invitation_signal = Push(frames.InvitationSignal)
presence_signal = Push(frames.PresenceSignal)
stored = Push(frames.Stored)
too_long = Push(frames.TooLong)
reset = Push(frames.Reset)
error = Push(frames.Error)
bye = Push(frames.Bye)
