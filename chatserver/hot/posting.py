"""Telling devices on other gateways: by mail, to the gateways that Redis named.

What a gateway does for sessions of its own is in `chatserver.gateway.push`; a process without
sessions, such as the API, has only this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import Places
from chatserver.hot.inbox import parse_gateways
from chatserver.hot.mailbox import (
    AnyRecord,
    ChannelSignal,
    Nudge,
    Postman,
    Publish,
    Push,
    SignalMail,
)


class Poster:
    """Posts what one process has to tell; best effort, as all mail is.

    `own`: the gateway whose sessions are told without mail; nothing is posted to it.
    """

    def __init__(self, postman: Postman, own: GatewayId) -> None:
        self._postman = postman
        self._own = own

    def push(self, users: Sequence[UserId], epoch: Epoch, places: Places, body: bytes) -> None:
        """Bring an event to the devices of `users`, each at its place of the inbox."""
        if places.far is None:
            return
        mail: dict[GatewayId, Push] = {}
        for user, first, far in zip(users, places.firsts, places.far, strict=True):
            if far:
                for gateway in parse_gateways(far):
                    if gateway != self._own:
                        push = mail.get(gateway)
                        if push is None:
                            push = mail[gateway] = Push([], epoch, [], body)
                        push.users.append(user)
                        push.seqs.append(first + places.offset)
        for gateway, push in mail.items():
            self._postman.post(gateway, push)

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Say that the inbox has grown to `seq`: sessions read what they lack."""
        self._post(gateways, Nudge(user, seq))

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: bytes | Literal[0]
    ) -> None:
        """Bring an entry of a large chat to its members; `far`: the gateways, or 0."""
        if far:
            for gateway in parse_gateways(far):
                self._postman.post(gateway, Publish(chat, epoch, seq, body))

    def nudge_channel(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Say that a large chat has grown to `seq`."""
        self._post(gateways, Publish(chat, "", seq, b""))

    def signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Bring a signal to the user's devices."""
        self._post(gateways, SignalMail(user, frame))

    def signal_channel(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Bring a signal of `user` to the other members of a large chat."""
        self._post(gateways, ChannelSignal(chat, user, frame))

    def _post(self, gateways: Sequence[GatewayId], record: AnyRecord) -> None:
        for gateway in gateways:
            if gateway != self._own:
                self._postman.post(gateway, record)
