"""Commands of the client SDK: one method for each request frame.

A stateless mixin; `ChatClient` sends the requests and receives the responses.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from chatserver.client.chat import Chat
from chatserver.client.client_state import ANSWER_S
from chatserver.client.companion_calls import CompanionCalls
from chatserver.client.events import Acked
from chatserver.client.model import Entry, parse_entry
from chatserver.client.moderation_calls import ModerationCalls
from chatserver.client.outbox import OutboxEntry
from chatserver.client.request_queue import Fields
from chatserver.client.server_calls import build_fields, new_ref
from chatserver.domain.clock import Clock
from chatserver.errors import BadRequest, CorruptData, Unavailable
from chatserver.protocol.frames import Attachment, ClientFrame, InvitationInfo, ServerFrame

Reply = TypeVar("Reply", bound=ServerFrame)

ACK_S = 30.0
# Frames that change the state of the client, or that have no reply.
OWN_FRAMES = frozenset(
    {
        "auth", "delete", "edit", "hello", "react", "send", "state", "sync", "typing", "unwatch",
        "watch",
    }
)  # fmt: skip


class HistoryPage(msgspec.Struct, frozen=True):
    """Entries in ascending seq, without gaps. `tier` is the coldest storage tier that was read."""

    entries: list[Entry]
    tier: str
    has_more: bool


class MessagesPage(msgspec.Struct, frozen=True):
    """Messages from several chats. `next` is the `cursor` of the next page, or None."""

    messages: list[Entry]
    next: str | None


class ChatsPage(msgspec.Struct, frozen=True):
    """Chats, most recent activity first. `next`: the `after` argument for the next page."""

    chats: list[Chat]
    next: str | None


class SearchResult(NamedTuple):
    """A message that matches a search. `snippet` has `(text, is_match)` for parts of its body."""

    message: Entry
    snippet: list[tuple[str, bool]]


class SearchPage(NamedTuple):
    """Search results. `next`: the `after` argument for the next page, or None."""

    results: list[SearchResult]
    next: str | None


class Calls(ModerationCalls, CompanionCalls):
    """Commands of a chat client. Coroutines wait for the server's response.

    Raises:
        ClientError: the request is invalid; the message names the field.
        Unavailable: no response in time; the same call, with the same `ref`, may succeed later.
    """

    _activity: str
    _clock: Clock

    @abc.abstractmethod
    def _enqueue(self, operation: OutboxEntry) -> None:
        """Append an operation (send, edit, deletion, reaction) to the outbox."""

    @abc.abstractmethod
    async def _submit(self, operation: OutboxEntry, deadline_s: float) -> Acked:
        """Append an operation to the outbox and wait for its ack."""

    async def _read_cached(self, request: Fields) -> HistoryPage | None:
        """Return a page of history from the message cache, or None if it is not cached."""
        return None

    @property
    def _has_cache(self) -> bool:
        """True if messages are cached."""
        return False

    @abc.abstractmethod
    def _notify(self, fields: Fields) -> None:
        """Send a frame that gets no response."""

    @abc.abstractmethod
    def _set_presence_subscriptions(self, users: list[str], *, is_on: bool) -> None:
        """Start or stop presence subscriptions to users."""

    async def request(
        self, frame: ClientFrame, reply: type[Reply], *, deadline_s: float = ANSWER_S
    ) -> Reply:
        """Send a request that the client has no method for, and return its reply as `reply`.

        The client sets the frame's `id`. Example: `await client.request(Blocks(0), BlocksPage)`.

        Raises:
            BadRequest: the client itself sends this frame, or the frame has no reply.
            CorruptData: the reply has another type.
        """
        request = msgspec.to_builtins(frame)
        if request["type"] in OWN_FRAMES:
            raise BadRequest(f"{request['type']}: use the method of the client")
        response = await self._request(request, deadline_s)
        try:
            return msgspec.json.decode(msgspec.json.encode(response), type=reply)
        except msgspec.ValidationError as exc:
            raise CorruptData(f"reply to {request['type']}: {exc}") from exc

    @property
    def user(self) -> str:
        """The user id in the token."""
        return self._state.user

    @property
    def device(self) -> str:
        """The name of this device."""
        return self._state.device

    @property
    def is_online(self) -> bool:
        return self._state.is_online

    @property
    def known_chats(self) -> list[Chat]:
        """The chats loaded so far, most recently active last."""
        return list(self._state.chats.values())

    def find_chat(self, chat: str) -> Chat | None:
        """Return a chat, or None if it is not loaded."""
        return self._state.chats.get(chat)

    def messages(self, chat: str) -> list[Entry]:
        """Return a chat's messages that are in memory, with all changes applied."""
        cached = self._state.chats.get(chat)
        return [] if cached is None else cached.log.messages(self._clock.time())

    def pending_operations(self, chat: str) -> list[OutboxEntry]:
        """Return this device's operations in a chat that have not been stored yet, in order."""
        return [operation for operation in self._state.outbox if operation.chat == chat]

    @property
    def unanswered(self) -> int:
        """The number of operations that wait for an ack."""
        return self._state.outbox.unanswered

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
        """Send a message and wait for its ack.

        With durability "stored", the ack arrives once DynamoDB has the message.

        `attachments` are results of `upload`, or their ids; with attachments, `body` may be "".
        """
        fields = {
            "body": body,
            "kind": kind,
            "reply_to": reply_to,
            "expires_s": expires_s,
            "attachments": _get_attachment_ids(attachments),
        }
        operation = _build_operation("send", chat, ref, durability=durability, **fields)
        return await self._submit(operation, deadline_s)

    def post(
        self,
        chat: str,
        body: str,
        *,
        ref: str | None = None,
        attachments: Sequence[Attachment | str] = (),
    ) -> str:
        """Send a message without waiting; return its ref. An `Acked` or `Refused` event follows."""
        options = {
            "kind": "text",
            "durability": "hot",
            "attachments": _get_attachment_ids(attachments),
        }
        operation = _build_operation("send", chat, ref, body=body, **options)
        self._enqueue(operation)
        return operation.ref

    async def edit(
        self, chat: str, seq: int, body: str, *, ref: str | None = None, deadline_s: float = ACK_S
    ) -> Acked:
        """Replace the text of a message that the user sent."""
        return await self._submit(
            _build_operation("edit", chat, ref, seq=seq, body=body), deadline_s
        )

    async def delete(
        self,
        chat: str,
        seq: int,
        *,
        scope: Literal["all", "me"] = "all",
        ref: str | None = None,
        deadline_s: float = ACK_S,
    ) -> Acked:
        """Delete a message, for everyone or only for the user."""
        operation = _build_operation("delete", chat, ref, seq=seq, **{"for": scope})
        return await self._submit(operation, deadline_s)

    async def react(
        self, chat: str, seq: int, emoji: str, *, ref: str | None = None, deadline_s: float = ACK_S
    ) -> Acked:
        """Set the user's reaction to a message; "" removes it."""
        return await self._submit(
            _build_operation("react", chat, ref, seq=seq, emoji=emoji), deadline_s
        )

    async def mark(
        self, chat: str, *, read: int | None = None, received: int | None = None
    ) -> None:
        """Advance the user's read and received marks in a chat; they never move back."""
        await self._call("mark", chat=chat, read=read, received=received)

    def typing(self, chat: str, *, is_on: bool) -> None:
        """Send a typing indicator to the other members."""
        self._notify({"type": "typing", "chat": chat, "on": is_on})

    async def stop(self, chat: str) -> None:
        """Stop an AI companion's response; the text generated so far becomes the message."""
        await self._call("stop", chat=chat)

    async def load_response(self, chat: str) -> None:
        """Load the current text of an unfinished AI response; it arrives as `ResponseUpdated`."""
        self._state.companion_responses.apply_text(await self._call("join_turn", chat=chat))

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

        The client keeps the entries if they are adjacent to its other entries. They are not
        delivered as events. If no event of the chat has been delivered yet, the newest page sets
        where delivery begins: only later entries are delivered as events. Entries that the user
        has cleared are not returned.

        With a message cache, the page is read from the cache if the server does not respond; its
        `tier` is then "cache". It may be shorter than `limit`, but has no gap.

        Raises:
            Unavailable: the server does not respond, or the client is offline and the page is not
            cached.
        """
        chat_state = self._state.chats.get(chat)
        if chat_state is not None and after is not None:
            after = max(after, chat_state.cleared_upto)
        fields = build_fields("history", chat=chat, before=before, after=after, limit=limit)
        is_offline = self._has_cache and not self.is_online
        try:
            if is_offline:
                raise Unavailable(f"history: offline, and this page of chat {chat} is not cached")
            page = await self._request(fields, deadline_s)
        except Unavailable:
            cached = await self._read_cached(fields)
            if cached is None:
                raise
            return self._omit_cleared(chat, cached, is_older=after is None)
        is_newest = before is None and after is None
        self._state.apply_history(page, is_newest=is_newest, before=before)
        entries = [parse_entry(fields) for fields in page["messages"]]
        history_page = HistoryPage(entries, page["tier"], page["more"])
        return self._omit_cleared(chat, history_page, is_older=after is None)

    def _omit_cleared(self, chat: str, page: HistoryPage, *, is_older: bool) -> HistoryPage:
        cached = self._state.chats.get(chat)
        upto = 0 if cached is None else cached.cleared_upto
        if not page.entries or page.entries[0].seq > upto + 1:
            return page
        entries = [entry for entry in page.entries if entry.seq > upto]
        return HistoryPage(entries, page.tier, page.has_more and not is_older)

    async def all_messages(
        self,
        *,
        direction: Literal["sent", "received"] | None = None,
        from_ts: int = 0,
        to_ts: int | None = None,
        newest_first: bool = True,
        cursor: str | None = None,
        limit: int = 50,
    ) -> MessagesPage:
        """Return a page of the messages that the user sent and received in all chats.

        `from_ts` and `to_ts` limit the time range, in Unix microseconds, both inclusive. The client
        does not keep the messages. Requires `api_url`.
        """
        page = await self._get_http_api().get(
            "/v1/me/messages",
            direction=direction,
            to=to_ts,
            order="newest" if newest_first else "oldest",
            cursor=cursor,
            limit=limit,
            **{"from": from_ts},
        )
        return MessagesPage([parse_entry(fields) for fields in page["items"]], page["next"])

    async def search(
        self,
        query: str,
        *,
        order: Literal["newest", "relevance"] = "newest",
        after: str | None = None,
        limit: int = 20,
    ) -> SearchPage:
        """Return messages in the user's chats that match a query (docs/search.md).

        A page may have fewer results than `limit`, or none, and still have a `next`. A client that
        is not connected uses the HTTP API, if it has an `api_url`.

        Raises:
            NotFound: the server has no search index.
        """
        if self.is_online or self._api is None:
            page = await self._call("search", q=query, order=order, after=after, limit=limit)
            results, next_cursor = page["results"], page.get("next")
        else:
            options = {"q": query, "order": order, "cursor": after, "limit": limit}
            page = await self._api.get("/v1/search", **options)
            results, next_cursor = page["items"], page["next"]
        return SearchPage([_parse_result(result) for result in results], next_cursor)

    async def chats(self, *, after: str | None = None, limit: int = 50) -> ChatsPage:
        """Return the user's chats, most recent activity first.

        While offline, a client with a message cache returns all cached chats on one page.
        """
        if self._has_cache and not self.is_online and after is None:
            return ChatsPage(self.known_chats[::-1], None)
        page = await self._call("chats", after=after, limit=limit)
        self._state.apply_chat_list(page)
        chats = [self._state.chats[summary["chat"]] for summary in page["chats"]]
        return ChatsPage(chats, page.get("next"))

    async def open_direct(self, user: str) -> Chat:
        """Return the direct chat with another user. Idempotent."""
        return await self._request_chat("open_direct", user=user)

    async def create_chat(
        self, members: Sequence[str], *, name: str | None = None, ref: str | None = None
    ) -> Chat:
        """Create a group; the same `ref` returns the same group."""
        return await self._request_chat(
            "create_chat", members=list(members), name=name, ref=ref or new_ref()
        )

    async def invite(
        self,
        chat: str,
        users: Sequence[str],
        *,
        role: Literal["admin", "member"] = "member",
        ref: str | None = None,
    ) -> Chat:
        """Add users to a group; users whose consent is needed receive an invitation."""
        return await self._change_group("invite", chat, ref, users=list(users), role=role)

    async def join(self, chat: str, *, ref: str | None = None) -> Chat:
        """Join a group that is open to everyone."""
        return await self._change_group("join", chat, ref)

    async def invitations(
        self, *, after: str | None = None, limit: int = 50
    ) -> tuple[list[InvitationInfo], str | None]:
        """Return `(invitations, next)`; `next` is the `after` argument for the next page.

        A page with `next` may have fewer invitations than `limit`, or none. A `SignalReceived` with
        kind ``invitation`` announces a new invitation.
        """
        page = await self._call("invitations", after=after, limit=limit)
        invitations = msgspec.convert(page["invitations"], list[InvitationInfo])
        return invitations, page.get("next")

    async def accept_invitation(self, chat: str, *, ref: str | None = None) -> Chat:
        """Accept an invitation and join the group."""
        return await self._change_group("accept_invitation", chat, ref)

    async def decline_invitation(self, chat: str) -> None:
        """Decline an invitation without notifying the inviter."""
        await self._call("decline_invitation", chat=chat)

    async def leave(self, chat: str, *, ref: str | None = None) -> Chat:
        return await self._change_group("leave", chat, ref)

    async def remove(self, chat: str, user: str, *, ref: str | None = None) -> Chat:
        return await self._change_group("remove", chat, ref, user=user)

    async def set_role(
        self,
        chat: str,
        user: str,
        role: Literal["owner", "admin", "member"],
        *,
        ref: str | None = None,
    ) -> Chat:
        return await self._change_group("set_role", chat, ref, user=user, role=role)

    async def update_chat(
        self,
        chat: str,
        *,
        name: str | None = None,
        joining: str | None = None,
        history: str | None = None,
        slow_s: int | None = None,
        retention_s: int | None = None,
        topic: str | None = None,
        picture: str | None = None,
        ref: str | None = None,
    ) -> Chat:
        """Change a group's name, topic, picture or settings; "" removes a topic or picture."""
        return await self._change_group("update_chat", chat, ref, name=name, joining=joining,
                                  history=history, slow_s=slow_s,
                                  retention_s=retention_s, topic=topic,
                                  picture=picture)  # fmt: skip

    def watch(self, users: Sequence[str]) -> None:
        """Subscribe to the presence of up to 100 users. Changes arrive as `SignalReceived`."""
        self._set_presence_subscriptions(list(users), is_on=True)

    def unwatch(self, users: Sequence[str]) -> None:
        """Unsubscribe from the presence of users."""
        self._set_presence_subscriptions(list(users), is_on=False)

    def state(self, activity: Literal["fg", "bg"]) -> None:
        """Report whether the application is in the foreground."""
        self._activity = activity
        self._notify({"type": "state", "state": activity})


def _parse_result(fields: Fields) -> SearchResult:
    snippet = [(part["text"], part.get("hit", False)) for part in fields["snippet"]]
    return SearchResult(parse_entry(fields["message"]), snippet)


def _get_attachment_ids(attachments: Sequence[Attachment | str]) -> list[str] | None:
    ids = [
        attachment if isinstance(attachment, str) else attachment.id for attachment in attachments
    ]
    return ids or None


def _build_operation(type_: str, chat: str, ref: str | None, **fields: object) -> OutboxEntry:
    ref = ref or new_ref()
    return OutboxEntry(ref, chat, build_fields(type_, chat=chat, ref=ref, **fields))
