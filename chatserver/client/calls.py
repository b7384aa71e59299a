"""What an application can ask of a client: one method for each request frame.

A mixin without state: `ChatClient` says how a frame gets to the server and its answer back.
"""

from __future__ import annotations

import abc
import dataclasses
import secrets
from collections.abc import Sequence
from typing import Literal

import msgspec

from chatserver.client.chat import Chat
from chatserver.client.events import Acked
from chatserver.client.model import Entry, parse_entry
from chatserver.client.moderating import Moderating
from chatserver.client.outbox import Deed
from chatserver.client.requests import Fields
from chatserver.client.state import ANSWER_S, ClientState
from chatserver.client.talking import Talking
from chatserver.domain.clock import Clock
from chatserver.protocol.frames import Attachment, InvitationInfo

ACK_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryPage:
    """Entries in rising seq, without a hole. `tier` is the coldest one that was read."""

    entries: list[Entry]
    tier: str
    has_more: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ChatsPage:
    """Chats, newest activity first. `next` is the `after` of the next page, None on the last."""

    chats: list[Chat]
    next: str | None


def new_ref() -> str:
    """Return a name that no other deed will have."""
    return secrets.token_hex(12)


class Calls(Moderating, Talking):
    """The commands. Each waits until it is done.

    Raises:
        ClientError: the caller has to mend it; the message names the field.
        Unavailable: not done in time; the same call, with the same `ref`, may work later.
    """

    _state: ClientState
    _activity: str
    _clock: Clock

    @abc.abstractmethod
    def _post(self, deed: Deed) -> None:
        """Put a deed into the outbox."""

    @abc.abstractmethod
    async def _do(self, deed: Deed, deadline_s: float) -> Acked:
        """Put a deed into the outbox and wait for its ack."""

    @abc.abstractmethod
    def _tell(self, fields: Fields) -> None:
        """Send something that is not answered."""

    @abc.abstractmethod
    def _watch(self, users: list[str], *, is_on: bool) -> None:
        """Begin or end to hear of the presence of users."""

    # ── what is known ───────────────────────────────────────────────────────────────────────────

    @property
    def user(self) -> str:
        """Whom the token stands for."""
        return self._state.user

    @property
    def device(self) -> str:
        """The name of this device."""
        return self._state.device

    @property
    def is_online(self) -> bool:
        """True while there is a connection."""
        return self._state.is_online

    @property
    def known_chats(self) -> list[Chat]:
        """The chats heard of so far, the one heard of last at the end."""
        return list(self._state.chats.values())

    def find_chat(self, chat: str) -> Chat | None:
        """Return a chat if it was heard of."""
        return self._state.chats.get(chat)

    def messages(self, chat: str) -> list[Entry]:
        """Return the messages of a chat that are kept here, as they are now."""
        known = self._state.chats.get(chat)
        return [] if known is None else known.log.messages(self._clock.time())

    def deeds(self, chat: str) -> list[Deed]:
        """Return what we did in a chat that is not stored yet, in order."""
        return [deed for deed in self._state.outbox if deed.chat == chat]

    @property
    def unanswered(self) -> int:
        """How many sends wait for an ack."""
        return self._state.outbox.unanswered

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        chat: str,
        body: str,
        *,
        ref: str | None = None,
        kind: str = "text",
        reply_to: int | None = None,
        expires_s: int | None = None,
        durability: Literal["hot", "stored"] = "hot",
        attachments: Sequence[Attachment | str] = (),
        deadline_s: float = ACK_S,
    ) -> Acked:
        """Send a message and return its place. `durability`: when it counts as done.

        `attachments` are what `upload` returned, or ids of them; with them `body` may be "".
        """
        fields = {
            "body": body,
            "kind": kind,
            "reply_to": reply_to,
            "expires_s": expires_s,
            "attachments": _ids_of(attachments),
        }
        deed = _deed("send", chat, ref, durability=durability, **fields)
        return await self._do(deed, deadline_s)

    def post(
        self,
        chat: str,
        body: str,
        *,
        ref: str | None = None,
        attachments: Sequence[Attachment | str] = (),
    ) -> str:
        """Send a message without waiting; return its ref. `Acked` or `Refused` follows."""
        more = {"kind": "text", "durability": "hot", "attachments": _ids_of(attachments)}
        deed = _deed("send", chat, ref, body=body, **more)
        self._post(deed)
        return deed.ref

    async def edit(
        self, chat: str, seq: int, body: str, *, ref: str | None = None, deadline_s: float = ACK_S
    ) -> Acked:
        """Give a message of our own another text."""
        return await self._do(_deed("edit", chat, ref, seq=seq, body=body), deadline_s)

    async def delete(
        self,
        chat: str,
        seq: int,
        *,
        scope: Literal["all", "me"] = "all",
        ref: str | None = None,
        deadline_s: float = ACK_S,
    ) -> Acked:
        """Take a message away, from everybody or from ourselves."""
        deed = _deed("delete", chat, ref, seq=seq, **{"for": scope})
        return await self._do(deed, deadline_s)

    async def react(
        self, chat: str, seq: int, emoji: str, *, ref: str | None = None, deadline_s: float = ACK_S
    ) -> Acked:
        """Set our reaction to a message; "" takes it away."""
        return await self._do(_deed("react", chat, ref, seq=seq, emoji=emoji), deadline_s)

    async def mark(
        self, chat: str, *, read: int | None = None, received: int | None = None
    ) -> None:
        """Move our marks in a chat forward; they never move back."""
        await self._ask(_fields("mark", chat=chat, read=read, received=received), ANSWER_S)

    def typing(self, chat: str, *, is_on: bool) -> None:
        """Tell the other members that we write, or stopped."""
        self._tell({"type": "typing", "chat": chat, "on": is_on})

    async def stop(self, chat: str) -> None:
        """End the answer that a companion is making: what it has said so far is its message."""
        await self._ask(_fields("stop", chat=chat), ANSWER_S)

    async def join_turn(self, chat: str) -> None:
        """Hear what a companion has said so far, as `AnswerGrew`; what follows comes by itself."""
        self._state.spoken.joined(await self._ask(_fields("join_turn", chat=chat), ANSWER_S))

    async def history(
        self,
        chat: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        deadline_s: float = ANSWER_S,
    ) -> HistoryPage:
        """Return entries before or after a seq, by default the newest.

        A page that joins what is kept of the chat is kept, too. What it holds of a chat of which
        nothing was told before counts as told.
        """
        fields = _fields("history", chat=chat, before=before, after=after, limit=limit)
        page = await self._ask(fields, deadline_s)
        is_newest = before is None and after is None
        self._state.take_history(page, is_newest=is_newest, before=before)
        entries = [parse_entry(fields) for fields in page["messages"]]
        return HistoryPage(entries, page["tier"], page["more"])

    # ── chats ───────────────────────────────────────────────────────────────────────────────────

    async def chats(self, *, after: str | None = None, limit: int = 50) -> ChatsPage:
        """Return our chats, newest activity first."""
        page = await self._ask(_fields("chats", after=after, limit=limit), ANSWER_S)
        self._state.take_chats(page)
        chats = [self._state.chats[summary["chat"]] for summary in page["chats"]]
        return ChatsPage(chats, page.get("next"))

    async def open_direct(self, user: str) -> Chat:
        """Return the direct chat with another user, the same one every time."""
        return await self._ask_chat(_fields("open_direct", user=user))

    async def create_chat(
        self, members: Sequence[str], *, name: str | None = None, ref: str | None = None
    ) -> Chat:
        """Create a group; the same `ref` finds it again."""
        fields = _fields("create_chat", members=list(members), name=name, ref=ref or new_ref())
        return await self._ask_chat(fields)

    async def invite(
        self,
        chat: str,
        users: Sequence[str],
        *,
        role: Literal["admin", "member"] = "member",
        ref: str | None = None,
    ) -> Chat:
        """Make users members of a group; those to whom we are strangers are invited."""
        return await self._change("invite", chat, ref, users=list(users), role=role)

    async def join(self, chat: str, *, ref: str | None = None) -> Chat:
        """Become a member of a group that lets everybody in."""
        return await self._change("join", chat, ref)

    async def invitations(
        self, *, after: str | None = None, limit: int = 50
    ) -> tuple[list[InvitationInfo], str | None]:
        """Return a page of our pending invitations to groups, and the `after` of the next one.

        `Signalled` with kind ``invitation`` says that there is a new one.
        """
        page = await self._ask(_fields("invitations", after=after, limit=limit), ANSWER_S)
        found = msgspec.convert(page["invitations"], list[InvitationInfo])
        return found, page.get("next")

    async def accept_invitation(self, chat: str, *, ref: str | None = None) -> Chat:
        """Become a member of a group that somebody invited us to."""
        return await self._change("accept_invitation", chat, ref)

    async def decline_invitation(self, chat: str) -> None:
        """Refuse an invitation without notifying the inviter."""
        await self._ask(_fields("decline_invitation", chat=chat), ANSWER_S)

    async def leave(self, chat: str, *, ref: str | None = None) -> Chat:
        """Be a member no more."""
        return await self._change("leave", chat, ref)

    async def remove(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        """Take a member out of a group."""
        return await self._change("remove", chat, ref, user=user)

    async def set_role(
        self,
        chat: str,
        user: str,
        role: Literal["owner", "admin", "member"],
        *,
        ref: str | None = None,
    ) -> Chat:
        """Give a member another role."""
        return await self._change("set_role", chat, ref, user=user, role=role)

    async def update_chat(
        self,
        chat: str,
        *,
        name: str | None = None,
        joining: str | None = None,
        history: str | None = None,
        slow_s: int | None = None,
        retention_s: int | None = None,
        ref: str | None = None,
    ) -> Chat:
        """Change a group's name, who may join it, from where members read, its slow mode,
        or how long its messages live."""
        return await self._change("update_chat", chat, ref, name=name, joining=joining,
                                  history=history, slow_s=slow_s,
                                  retention_s=retention_s)  # fmt: skip

    async def _change(self, kind: str, chat: str, ref: str | None, **fields: object) -> Chat:
        return await self._ask_chat(_fields(kind, chat=chat, ref=ref or new_ref(), **fields))

    async def _ask_chat(self, fields: Fields) -> Chat:
        answer = await self._ask(fields, ANSWER_S)
        info = answer.get("chat") or {"chat": fields["chat"]}
        self._state.take_info(info)
        return self._state.chats[info["chat"]]

    # ── presence ────────────────────────────────────────────────────────────────────────────────

    def watch(self, users: Sequence[str]) -> None:
        """Hear of the presence of up to 100 users more, as `Signalled`."""
        self._watch(list(users), is_on=True)

    def unwatch(self, users: Sequence[str]) -> None:
        """Hear of them no more."""
        self._watch(list(users), is_on=False)

    def state(self, activity: Literal["fg", "bg"]) -> None:
        """Tell whether the application is in sight."""
        self._activity = activity
        self._tell({"type": "state", "state": activity})


def _fields(type_: str, **fields: object) -> Fields:
    return {"type": type_, **{name: value for name, value in fields.items() if value is not None}}


def _ids_of(attachments: Sequence[Attachment | str]) -> list[str] | None:
    ids = [each if isinstance(each, str) else each.id for each in attachments]
    return ids or None


def _deed(type_: str, chat: str, ref: str | None, **fields: object) -> Deed:
    ref = ref or new_ref()
    return Deed(ref, chat, _fields(type_, chat=chat, ref=ref, **fields))
