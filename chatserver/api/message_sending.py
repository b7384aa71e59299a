"""Message sending over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chatserver.api.container import ApiContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.protocol import frames
from chatserver.service.messaging.service import Draft


async def send_message(
    parts: ApiContainer, sender: UserId, frame: frames.Send, *, is_system: bool = False
) -> frames.Ack:
    """Send a message and return its position in the chat. `is_system`: see `Draft`.

    Guarantees:
        As `Messaging.send`. With ``durability: "stored"``, the message is in the warm tier when
            the call returns.

    Raises:
        ChatError: the same error that the protocol returns for the frame.
    """
    if parts.companion_requests.needs_budget_check(frame.chat):
        await parts.companion_requests.check_budget(sender, frame)
    files: Sequence[frames.Attachment] = ()
    if frame.attachments:
        files = await parts.sendable.resolve(sender, ChatId(frame.chat), frame.attachments)
    ack = await parts.messaging.send(Draft(sender, frame, files, is_system=is_system))
    if frame.durability == "hot":
        return ack
    await parts.stored.wait(ChatId(frame.chat), Seq(ack.seq))
    return msgspec.structs.replace(ack, durability="stored")
