"""What an application can ask about those who misbehave: block, mute, ban, report.

A mixin without state, like `chatserver.client.calls`; the rules are the server's
(docs/moderation.md).
"""

from __future__ import annotations

import abc
from typing import NamedTuple

from chatserver.client.chat import Chat
from chatserver.client.requests import Fields
from chatserver.client.state import ANSWER_S


class BlocksPage(NamedTuple):
    """Whom we block, by id. `next` is the `after` of the next page, None on the last."""

    users: list[str]
    next: str | None


class Moderating(abc.ABC):
    """The commands. Each waits until it holds, and may be repeated.

    Raises:
        ClientError: the caller has to mend it, or may not do it.
        Unavailable: not done in time; the same call may work later.
    """

    @abc.abstractmethod
    async def _ask(self, fields: Fields, deadline_s: float) -> Fields:
        """Return the answer to a request."""

    @abc.abstractmethod
    async def _change(self, kind: str, chat: str, ref: str | None, **fields: object) -> Chat:
        """Change a group, and return it as it is then."""

    async def block(self, user: str) -> None:
        """End direct messages and invitations between us and another user, both ways."""
        await self._ask({"type": "block", "user": user}, ANSWER_S)

    async def unblock(self, user: str) -> None:
        """End our own block; not the other one's."""
        await self._ask({"type": "unblock", "user": user}, ANSWER_S)

    async def blocks(self, *, after: str | None = None, limit: int = 50) -> BlocksPage:
        """Return whom we block."""
        place = {} if after is None else {"after": after}
        page = await self._ask({"type": "blocks", "limit": limit, **place}, ANSWER_S)
        return BlocksPage([each["user"] for each in page["blocked"]], page.get("next"))

    async def mute(
        self, chat: str, user: str, *, mute_s: int | None = None, ref: str | None = None
    ) -> Chat:
        """Keep a member of a group from writing, for a time or for good."""
        return await self._change("mute_member", chat, ref, user=user, mute_s=mute_s)

    async def unmute(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Let a member write again."""
        return await self._change("mute_member", chat, ref, user=user, mute_s=0)

    async def ban(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Take a user out of a group, and keep him from coming back."""
        return await self._change("ban_member", chat, ref, user=user)

    async def unban(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Let a user come back; he is not a member with that."""
        return await self._change("unban_member", chat, ref, user=user)

    async def report(self, chat: str, seq: int, reason: str = "") -> None:
        """Tell the admins of a group, and those of the server, of a message."""
        fields = {"type": "report", "chat": chat, "seq": seq, "reason": reason}
        await self._ask(fields, ANSWER_S)
