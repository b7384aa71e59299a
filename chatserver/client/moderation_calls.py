"""Moderation commands of the client SDK: block, mute, ban and report.

A stateless mixin, like `chatserver.client.calls`; the server enforces the rules
(docs/moderation.md).
"""

from __future__ import annotations

from typing import NamedTuple

from chatserver.client.chat import Chat
from chatserver.client.server_calls import ServerCalls


class BlocksPage(NamedTuple):
    """Blocked users, sorted by id. `next`: the `after` argument for the next page, or None."""

    users: list[str]
    next: str | None


class ModerationCalls(ServerCalls):
    """Moderation commands, which wait for the response and may be repeated.

    Raises:
        ClientError: the request is invalid or not permitted.
        Unavailable: no response in time; the same call may succeed later.
    """

    async def block(self, user: str) -> None:
        """Block another user: neither can send the other direct messages or invitations."""
        await self._call("block", user=user)

    async def unblock(self, user: str) -> None:
        """Unblock a user. A block in the other direction stays."""
        await self._call("unblock", user=user)

    async def blocks(self, *, after: str | None = None, limit: int = 50) -> BlocksPage:
        """Return a page of the users whom the signed-in user has blocked."""
        page = await self._call("blocks", after=after, limit=limit)
        return BlocksPage([block["user"] for block in page["blocked"]], page.get("next"))

    async def mute(
        self, chat: str, user: str, *, mute_s: int | None = None, ref: str | None = None
    ) -> Chat:
        """Prevent a member of a group from writing, for a time or permanently."""
        return await self._change_group("mute_member", chat, ref, user=user, mute_s=mute_s)

    async def unmute(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Allow a member to write again."""
        return await self._change_group("mute_member", chat, ref, user=user, mute_s=0)

    async def ban(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Remove a user from a group and prevent them from rejoining."""
        return await self._change_group("ban_member", chat, ref, user=user)

    async def unban(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Allow a banned user to join again, without adding the user to the group."""
        return await self._change_group("unban_member", chat, ref, user=user)

    async def report(self, chat: str, seq: int, reason: str = "") -> None:
        """Report a message to the admins of the group and of the server."""
        await self._call("report", chat=chat, seq=seq, reason=reason)
