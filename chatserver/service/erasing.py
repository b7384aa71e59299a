"""Taking away what a user said: each message is deleted for all, in the system's name.

::

    message ──► delete entry ──► amend.lua, which asks for no membership ──► overlay, log, backlog
                   ▲ │ the message is not in the hot tier                      │
                   └─┴ read it in the warm one, ask again                      ▼ workers.persist

It goes the way of any deletion, so every device and every tier follows; the fan-out is
`workers.repair`'s. The reference is made of the message's place, so that a repeat is known.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from chatserver.domain.amendments import Amended, Amendment, Outcome
from chatserver.domain.ids import ChatId, MidSource, Ref, Seq, UserId
from chatserver.domain.messages import Audience, digest_of
from chatserver.errors import CorruptData, Unavailable
from chatserver.protocol import codec, frames
from chatserver.protocol.entries import is_message

TRIES_MAX = 6


class Commits(Protocol):
    """Where entries are committed."""

    async def amend(
        self, amendment: Amendment, base: bytes = b"", asked: int = 0, author: str = ""
    ) -> Amended: ...


class Audiences(Protocol):
    """Opens chats in the hot tier."""

    def drop(self, chat: ChatId) -> None: ...

    async def get(self, chat: ChatId) -> Audience: ...


class Entries(Protocol):
    """Entries of the warm tier."""

    async def find_entry(self, chat: str, ts: int) -> frames.Message | None: ...


def has_words(entry: frames.Message) -> bool:
    """Tell whether an entry of the warm tier holds something that its sender wrote."""
    if entry.kind == "edit":
        return bool(entry.body)
    return is_message(entry) and not entry.deleted


class TextEraser:
    """The use case. `system`: in whose name."""

    def __init__(
        self, commits: Commits, audiences: Audiences, entries: Entries, system: UserId
    ) -> None:
        self._commits = commits
        self._audiences = audiences
        self._entries = entries
        self._system = system
        self._mids = MidSource()

    async def erase(self, user: UserId, message: frames.Message) -> bool:
        """Delete a message of the user; False if there is nothing to delete any more.

        `message`: as it was found. Of an edit only what is left when its message is gone.

        Guarantees:
            Idempotent. From the return on no read delivers the text (promise I15).

        Raises:
            Unavailable: a tier does not answer; do it again.
        """
        chat, base, asked = ChatId(message.chat), b"", 0
        target = message if message.kind != "edit" else _stand_in(message)
        amendment = self._make(chat, target.seq)
        await self._audiences.get(chat)
        for _ in range(TRIES_MAX):
            amended = await self._commits.amend(amendment, base, asked, user)
            match amended.outcome:
                case Outcome.COMMITTED | Outcome.KNOWN:
                    return True
                case Outcome.DELETED | Outcome.NO_MESSAGE:
                    return False
                case Outcome.ELSEWHERE:
                    found = await self._find(message, target)
                    if found is None:
                        return False
                    base, asked = codec.encode(found), amended.seq
                case Outcome.CLOSED:
                    self._audiences.drop(chat)
                    await self._audiences.get(chat)
                case _ as refusal:
                    raise CorruptData(f"erasing {chat}/{target.seq}: amend.lua says {refusal}")
        raise Unavailable(f"erasing {chat}/{target.seq}: it keeps changing")

    async def _find(self, message: frames.Message, target: frames.Message) -> frames.Message | None:
        if message.kind == "edit":
            return target
        return await self._entries.find_entry(message.chat, message.ts)

    def _make(self, chat: ChatId, seq: int) -> Amendment:
        mid, ref = self._mids.next(), Ref(f"erase-{seq}")
        tail = codec.encode_entry_tail(chat, mid, self._system, ref, "delete", "", Seq(seq))
        digest = digest_of("delete", "", Seq(seq))
        return Amendment(chat, self._system, ref, mid, digest, "delete", Seq(seq), "", tail)


def _stand_in(edit: frames.Message) -> frames.Message:
    """Return a message that was changed last by `edit`, in the place of one that is gone.

    Its deletion takes the edit's text along, and finds nothing of the message itself.
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
