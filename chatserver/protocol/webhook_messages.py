"""Webhook request and response types. Each is one JSON object; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chatserver.protocol.frames import ENTRY_KINDS, Id, Message

ANSWER_BYTES_MAX = 65_536
WHY_CHARS_MAX = 200


class BeforeSend(msgspec.Struct, frozen=True):
    """Request to the before-send webhook, for a message that a user is sending.

    `kind` is the message's kind, or ``edit``. For an edit, `target` is the seq of the edited
    message.
    """

    chat: Id
    sender: Id
    ref: Id
    kind: str
    body: str
    reply_to: int | None = None
    target: int | None = None
    attachments: list[str] = []


class Verdict(msgspec.Struct, frozen=True):
    """Response from the before-send webhook.

    For ``change``, `body` replaces the message text. For ``refuse``, `why` is the reason.
    """

    action: Literal["accept", "change", "refuse"]
    body: str | None = None
    why: Annotated[str, Meta(max_length=WHY_CHARS_MAX)] = ""


class HookEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event sent to the events webhook. Deliveries may repeat; `id` identifies the event.

    The types ``message``, ``edit``, ``delete``, ``reaction``, ``member``, ``update``, ``pin`` and
    ``unpin`` set `message`. All other types set `data`.
    """

    id: str
    type: str
    ts: int
    message: Message | None = None
    data: dict[str, str | int] | None = None


encode = msgspec.json.Encoder().encode
decode_verdict = msgspec.json.Decoder(Verdict).decode
decode_event = msgspec.json.Decoder(HookEvent).decode


def build_event(message: Message) -> HookEvent:
    """Return the event for a chat entry; its id is ``<chat>.<seq>``."""
    kind = message.kind if message.kind in _ENTRIES else "message"
    return HookEvent(f"{message.chat}.{message.seq}", kind, message.ts, message)


_ENTRIES = frozenset(ENTRY_KINDS)
