"""Erasure of a user's messages: deletes them for everyone on behalf of the system user.

::

    message ─► delete entry ─► commit_change.lua, no membership check ─► overlay, log, backlog
                  ▲ │ the message is not in the hot tier                   │
                  └─┴ read it in the warm tier, retry                      ▼ workers.persist.worker

All devices and tiers apply the deletion like any other deletion; worker `repair` does the fan-out.
The deletion's `ref` is derived from the message's seq, so erasing a message again has no effect.
"""

from __future__ import annotations

import attrs
import msgspec

from chatserver.domain.ids import ChatId, MidSource, Ref, Seq, UserId
from chatserver.domain.message_change_types import ChangeOutcome, MessageChange
from chatserver.domain.messages import compute_digest
from chatserver.errors import CorruptData, Unavailable
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.message_changes import MessageChangeCommitter
from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.history.user_messages import UserMessages

TRIES_MAX = 6


def has_text(entry: frames.Message) -> bool:
    """Return whether a warm-tier entry has text that its sender wrote."""
    if entry.kind == "edit":
        return bool(entry.body)
    return is_message(entry) and not entry.deleted


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageEraser:
    """Erases users' messages. `system` is the user recorded as the sender of the deletions."""

    _commits: MessageChangeCommitter
    _audiences: Audiences
    _messages: UserMessages
    _system: UserId
    _mids: MidSource = attrs.field(factory=MidSource, init=False)

    async def erase(self, user: UserId, message: frames.Message) -> bool:
        """Delete a user's message; return False if there is nothing left to delete.

        `message` may be an edit only if the edited message no longer exists.

        Guarantees:
            Idempotent. After it returns, no read returns the text.

        Raises:
            Unavailable: a tier does not respond; repeat the call.
        """
        chat, base, head = ChatId(message.chat), b"", 0
        target = message if message.kind != "edit" else _make_placeholder(message)
        change = self._make(chat, target.seq)
        await self._audiences.get(chat)
        for _ in range(TRIES_MAX):
            changed = await self._commits.commit_change(change, base, head, user)
            match changed.outcome:
                case ChangeOutcome.COMMITTED | ChangeOutcome.KNOWN:
                    return True
                case ChangeOutcome.DELETED | ChangeOutcome.NO_MESSAGE:
                    return False
                case ChangeOutcome.ELSEWHERE:
                    stored = await self._find(message, target)
                    if stored is None:
                        return False
                    base, head = codec.encode(stored), changed.seq
                case ChangeOutcome.CLOSED:
                    self._audiences.drop(chat)
                    await self._audiences.get(chat)
                case _ as refusal:
                    raise CorruptData(f"erasing {chat}/{target.seq}: unexpected outcome {refusal}")
        raise Unavailable(f"erasing {chat}/{target.seq}: the message keeps changing; try again")

    async def _find(self, message: frames.Message, target: frames.Message) -> frames.Message | None:
        if message.kind == "edit":
            return target
        return await self._messages.find_entry(message.chat, message.ts)

    def _make(self, chat: ChatId, seq: int) -> MessageChange:
        mid, ref = self._mids.next(), Ref(f"erase-{seq}")
        tail = codec.encode_entry_tail(
            chat=chat,
            mid=mid,
            sender=self._system,
            ref=ref,
            kind="delete",
            body="",
            target=Seq(seq),
        )
        digest = compute_digest("delete", "", Seq(seq))
        return MessageChange(
            chat=chat,
            sender=self._system,
            ref=ref,
            mid=mid,
            digest=digest,
            kind="delete",
            target=Seq(seq),
            body="",
            tail=tail,
        )


def _make_placeholder(edit: frames.Message) -> frames.Message:
    """Return a placeholder for the missing message that `edit` changed.

    Deleting the placeholder removes the text of the edit.
    """
    return msgspec.structs.replace(
        edit,
        seq=edit.target or 0,
        ts=1,
        kind="text",
        body="",
        target=None,
        edited_ts=edit.ts,
        edited_seq=edit.seq,
    )
