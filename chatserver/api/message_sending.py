"""Message sending over HTTP: submits a message and awaits its outcome.

WebSocket sessions use callbacks instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chatserver.api.container import ApiContainer
from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.domain.messages import Draft
from chatserver.errors import ChatError, Overloaded, Unavailable
from chatserver.protocol import frames


async def send_message(
    parts: ApiContainer, sender: UserId, frame: frames.Send, *, is_system: bool = False
) -> frames.Ack:
    """Send a message and return its position in the chat. `is_system`: see `Messaging.send`.

    Guarantees:
        As `Messaging.send`. With ``durability: "stored"``, the message is in the warm tier when
            the call returns.
        Cancellation: the message may have been sent; retry with the same `ref` to find out.

    Raises:
        ChatError: the same error that the protocol returns for the frame.
    """
    if parts.companion_requests.needs_budget_check(frame.chat):
        await parts.companion_requests.check_budget(sender, frame)
    answer = _Answer()
    files: Sequence[frames.Attachment] = ()
    if frame.attachments:
        files = await parts.sendable.resolve(sender, ChatId(frame.chat), frame.attachments)
    parts.messaging.send(sender, frame, answer, files, is_system=is_system)
    ack = await answer.future
    if frame.durability == "hot":
        return ack
    await _wait_until_stored(parts, frame, Seq(ack.seq))
    return msgspec.structs.replace(ack, durability="stored")


async def _wait_until_stored(parts: ApiContainer, frame: frames.Send, seq: Seq) -> None:
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
    """Future result of one send."""

    def __init__(self) -> None:
        self.future: asyncio.Future[frames.Ack] = asyncio.get_running_loop().create_future()

    def acked(self, draft: Draft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """Complete with the position of the committed message."""
        if not self.future.done():
            ack = frames.Ack(draft.request_id, draft.ref, mid, seq, ts, dup, "hot")
            self.future.set_result(ack)

    def refused(self, draft: Draft, error: ChatError) -> None:
        """Complete with an error. The message may have been sent if the outcome is unknown."""
        if not self.future.done():
            self.future.set_exception(error)
