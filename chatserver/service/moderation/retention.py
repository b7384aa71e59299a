"""Message retention of chats, and legal holds that preserve messages beyond it.

Retention is a setting of the chat: messages sent from then on expire. Managers of a group change it
like any other setting; the host application can set it for every chat. Holds belong to the host
application and are invisible to members: deleted and changed messages are copied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, Ref, Seq, UserId
from chatserver.domain.inboxes import Place
from chatserver.domain.text import parse_note
from chatserver.errors import BadRequest, Conflict, NotFound
from chatserver.protocol import codec, frames

NOTED_S = 20.0  # a change whose marker is this old has ended, completed or not


class HoldRows(Protocol):
    """Legal holds in the directory; see `chatserver.warm.chats.legal_holds`."""

    async def put(self, chat: str, reason: str, by: str, now: float) -> Any: ...

    async def get(self, chat: str) -> Any: ...

    async def end(self, chat: str) -> None: ...


class ChatRows(Protocol):
    """Chats in the directory."""

    async def get_chat(self, chat: str) -> Any: ...


class DirectRows(Protocol):
    """Settings of direct chats, and members of chats."""

    async def set_retention(self, chat: str, retention_s: int) -> bool: ...

    async def list_seniority(self, chat: str) -> list[tuple[str, Any]]: ...


class Notes(Protocol):
    """Change markers in Redis."""

    async def begin(self, chat: ChatId, hold_s: float) -> str: ...

    async def end(self, name: str) -> None: ...


class ChatVersions(Protocol):
    """Applies the write policy of a chat's row to Redis."""

    async def restrict(self, record: Any) -> None: ...

    async def describe(self, chat: ChatId) -> frames.ChatInfo: ...


class Inboxes(Protocol):
    """Users' inboxes."""

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes
    ) -> list[Place]: ...


class DeviceNotifier(Protocol):
    """Sends notifications to devices."""

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None: ...


ChangeGroup = Callable[[UserId, frames.UpdateChat], Awaitable[frames.ChatInfo]]


class Retention:
    """Retention and legal hold use cases of the host application."""

    def __init__(
        self,
        holds: HoldRows,
        chats: ChatRows,
        directs: DirectRows,
        notes: Notes,
        gates: ChatVersions,
        inboxes: Inboxes,
        told: DeviceNotifier,
        change_group: ChangeGroup,
        clock: Clock,
    ) -> None:
        self._holds = holds
        self._chats = chats
        self._directs = directs
        self._notes = notes
        self._gates = gates
        self._inboxes = inboxes
        self._told = told
        self._change_group = change_group
        self._clock = clock

    async def set_retention(self, chat: ChatId, retention_s: int, ref: Ref) -> frames.ChatInfo:
        """Set the retention of a chat for messages sent from now on; 0 keeps them forever.

        In a group, the change is made on behalf of a manager, so members see it like any other
        change.

        Guarantees:
            Idempotent. No message sent after it returns lives longer.

        Raises:
            NotFound: there is no such chat.
            Conflict: the group has neither owner nor admins.
            Unavailable: the change may have been made.
        """
        record = await self._chats.get_chat(chat)
        if record.kind == "direct":
            return await self._set_direct(chat, retention_s)
        for user, role in await self._directs.list_seniority(chat):
            if role in ("owner", "admin"):
                frame = frames.UpdateChat(0, chat, ref, retention_s=retention_s)
                return await self._change_group(UserId(user), frame)
        raise Conflict("chat: has neither owner nor admins in whose name its settings could change")

    async def _set_direct(self, chat: ChatId, retention_s: int) -> frames.ChatInfo:
        note = await self._notes.begin(chat, NOTED_S)
        is_new = await self._directs.set_retention(chat, retention_s)
        await self._gates.restrict(await self._chats.get_chat(chat))
        info = await self._gates.describe(chat)
        if is_new:
            users = [UserId(user) for user in info.members]
            for place in await self._inboxes.append_event(users, chat, codec.chat_event_body(info)):
                if place.appended:
                    self._told.nudge(place.user, place.seq, place.gateways)
        await self._notes.end(note)
        return info

    # legal holds

    async def hold(self, chat: ChatId, reason: str, by: str) -> Any:
        """Put a chat under a legal hold, and return the hold; an existing one stays unchanged.

        Guarantees:
            Idempotent. Messages that members change or delete after it returns are copied first.

        Raises:
            BadRequest, TooLarge: the reason is empty or too long.
            NotFound: there is no such chat.
        """
        reason = parse_note(reason, "reason")
        if not reason:
            raise BadRequest("reason: must say why, for who looks after it later")
        await self._chats.get_chat(chat)
        return await self._holds.put(chat, reason, by, self._clock.time())

    async def get_hold(self, chat: ChatId) -> Any:
        """Return the hold of a chat. Raises NotFound."""
        return await self._holds.get(chat)

    async def release(self, chat: ChatId) -> None:
        """End a hold: its copies are deleted soon after. Idempotent."""
        try:
            await self._holds.end(chat)
        except NotFound:
            return
