"""Message sending over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.protocol import frames
from chatserver.service.messaging.message_sender import OutgoingMessage


async def send_message(
    container: StorageContainer, sender: UserId, frame: frames.Send, *, is_system: bool = False
) -> frames.Ack:
    """Send a message and return its ack. `is_system`: see `OutgoingMessage`.

    Guarantees:
        Same as `MessageSender.send`. With ``durability: "stored"``, the message is in DynamoDB when
        the call returns.

    Raises:
        ChatError: the error that the WebSocket protocol returns for the frame.
    """
    if is_session_chat(frame.chat):
        await container.check_companion_send(sender, frame)
    files: Sequence[frames.Attachment] = ()
    if frame.attachments:
        files = await container.resolve_files(sender, ChatId(frame.chat), frame.attachments)
    ack = await container.messaging.send(OutgoingMessage(sender, frame, files, is_system=is_system))
    if frame.durability == "hot":
        return ack
    await container.stored_waits.wait(ChatId(frame.chat), Seq(ack.seq))
    return msgspec.structs.replace(ack, durability="stored")
