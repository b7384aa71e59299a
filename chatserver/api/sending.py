"""Sending a message and waiting for what becomes of it; a session is called back instead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chatserver.api.parts import ApiParts
from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.domain.messages import Draft
from chatserver.errors import ChatError, Overloaded, Unavailable
from chatserver.protocol import frames


async def send_message(
    parts: ApiParts, sender: UserId, frame: frames.Send, *, is_system: bool = False
) -> frames.Ack:
    """Send a message and return where it stands. `is_system`: see `Messaging.send`.

    Guarantees:
        As `Messaging.send`. With ``durability: "stored"`` it is in the warm tier on return.
        Cancellation: it may be sent; the same `ref` tells.

    Raises:
        ChatError: what the protocol answers to the same frame.
    """
    if parts.asking.is_asked(frame.chat):
        await parts.asking.admit(sender, frame)
    answer = _Answer()
    files: Sequence[frames.Attachment] = ()
    if frame.attachments:
        files = await parts.sendable.take(sender, ChatId(frame.chat), frame.attachments)
    parts.messaging.send(sender, frame, answer, files, is_system=is_system)
    ack = await answer.future
    if frame.durability == "hot":
        return ack
    await _wait_until_stored(parts, frame, Seq(ack.seq))
    return msgspec.structs.replace(ack, durability="stored")


async def _wait_until_stored(parts: ApiParts, frame: frames.Send, seq: Seq) -> None:
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_stored() -> None:
        if not stored.done():
            stored.set_result(None)

    def on_timeout() -> None:
        if not stored.done():
            why = "not stored in time: the message may still appear; the same ref tells"
            stored.set_exception(Unavailable(why))

    if not parts.stored.add(ChatId(frame.chat), seq, on_stored, on_timeout):
        raise Overloaded("too many sends wait to be stored")
    await stored


class _Answer:
    """Hears once what became of a message."""

    def __init__(self) -> None:
        self.future: asyncio.Future[frames.Ack] = asyncio.get_running_loop().create_future()

    def acked(self, draft: Draft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """It has its place."""
        if not self.future.done():
            ack = frames.Ack(draft.request_id, draft.ref, mid, seq, ts, dup, "hot")
            self.future.set_result(ack)

    def refused(self, draft: Draft, error: ChatError) -> None:
        """It has none, or nobody knows."""
        if not self.future.done():
            self.future.set_exception(error)
