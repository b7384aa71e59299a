"""Message queries by time, user and content: the access patterns of the warm tier.

Members query a chat, and users query the messages that they sent and received. With the scope
`chats:read`, the host application may query any chat or user. A cursor is valid only for the same
list, range and direction. A query on one chat, and a user's query across their own chats, include
archived messages. The host application's lists of a user's sent and received messages cover chats
that the user has left, too, but use an index without archived messages, so they may lack messages
older than `archived_before`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, NamedTuple, cast

import msgspec
from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import Actor, key, user_or_key
from chatserver.api.paging import Limit, Page, PageOf, PageQuery
from chatserver.api.request_bodies import PathId, PathSeq
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.protocol import frames
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.message_context import Reference
from chatserver.service.history.message_queries import IndexPage
from chatserver.warm.dynamo.paging import QueryPage as WarmPage
from chatserver.warm.dynamo.paging import Token

READ, READ_ANY = user_or_key("chats:read"), key("chats:read")

Order = Annotated[
    Literal["newest", "oldest"],
    QueryParameter(required=False, description="sort order"),
]
From = Annotated[
    int,
    QueryParameter(
        name="from",
        ge=0,
        le=frames.INT_MAX,
        required=False,
        description="the earliest `ts`, microseconds since 1970",
    ),
]
To = Annotated[
    int,
    QueryParameter(
        name="to",
        ge=0,
        le=frames.INT_MAX,
        required=False,
        description="the latest `ts`, microseconds since 1970",
    ),
]
Direction = Annotated[
    Literal["sent", "received"] | None,
    QueryParameter(required=False, description="only messages that the user sent, or received"),
]
SeqHint = Annotated[int | None, QueryParameter(name="seq", ge=1, le=frames.INT_MAX, required=False)]
TsHint = Annotated[int | None, QueryParameter(name="ts", ge=0, le=frames.INT_MAX, required=False)]


class PageWindow(NamedTuple):
    """The part of a message list that a request reads."""

    span: TimeRange
    page: PageQuery

    def narrow(self, *filters: object) -> PageWindow:
        return self._replace(page=self.page.narrow(*filters))


async def provide_ordered(page: PageOf, order: Order = "newest") -> PageWindow:
    return await provide_window(page, order=order)


async def provide_window(
    page: PageOf, from_ts: From = 0, to_ts: To = frames.INT_MAX, order: Order = "newest"
) -> PageWindow:
    span = TimeRange(from_ts, to_ts, is_newest_first=order == "newest")
    return PageWindow(span, page.narrow(span))


Window = NamedDependency[PageWindow]
WINDOW = {"window": Provide(provide_window)}
ORDERED = {"window": Provide(provide_ordered)}

Read = Callable[[TimeRange, int, Token | None], Awaitable[WarmPage[frames.Message]]]
ReadOfUser = Callable[[TimeRange, int, Token | None], Awaitable[IndexPage]]


class UserMessagesPage(msgspec.Struct, frozen=True):
    """One page of a user's messages in all chats. `next` is the cursor of the next page."""

    items: list[frames.Message]
    next: str | None = None
    archived_before: Annotated[
        int | None,
        msgspec.Meta(
            description="messages with an earlier `ts` may be missing, because they are in the "
            "archive; list a single chat to get them. Null: no message in the list is archived"
        ),
    ] = None


class MessageContextPage(msgspec.Struct, frozen=True):
    """Messages around one message, in ascending `seq` and without gaps.

    `older` and `newer` are true if there are more messages in that direction.
    """

    messages: list[frames.Message]
    tier: Literal["hot", "warm", "cold"]
    older: bool
    newer: bool


def build_message_lists_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_single_message_routes(container),
        *_build_chat_routes(container),
        *_build_own_routes(container),
        *_build_admin_chat_routes(container),
    ]


def _wrap_json(message: bytes) -> frames.Message:
    """Wrap a JSON message, so that it is not encoded again."""
    return cast("frames.Message", msgspec.Raw(message))


def _build_single_message_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/messages/{seq:int}", opt={"rule": READ})
    async def get_message(chat: PathId, seq: PathSeq, actor: Actor) -> frames.Message:
        """Return one message as in the history; a deleted message has no content."""
        return _wrap_json(
            await container.message_context.get_message(actor, Reference(ChatId(chat), Seq(seq)))
        )

    @get("/v1/chats/{chat:str}/messages/by-mid/{mid:str}", opt={"rule": READ})
    async def get_message_by_mid(
        chat: PathId, mid: PathId, actor: Actor, seq: SeqHint = None, ts: TsHint = None
    ) -> frames.Message:
        """Return a message by its id. Pass the `seq` or `ts` that was returned with the id."""
        reference = Reference(
            ChatId(chat),
            None if seq is None else Seq(seq),
            None if ts is None else Ts(ts),
            Mid(mid),
        )
        return _wrap_json(await container.message_context.get_message(actor, reference))

    @get("/v1/chats/{chat:str}/messages/around/{seq:int}", opt={"rule": READ})
    async def list_messages_around(
        chat: PathId, seq: PathSeq, actor: Actor, limit: Limit = 50
    ) -> MessageContextPage:
        """List a message and its neighbors: half of `limit` before it, the rest after it."""
        reference = Reference(ChatId(chat), Seq(seq))
        context = await container.message_context.get_context(actor, reference, limit)
        messages = [_wrap_json(message) for message in context.messages]
        return MessageContextPage(messages, context.tier, context.has_older, context.has_newer)

    return [get_message, get_message_by_mid, list_messages_around]


async def _list(window: PageWindow, read: Read) -> Page[frames.Message]:
    span, page = window
    found = await read(span, page.limit, page.start)
    return page.build(found.items, found.next)


async def _list_of_user(window: PageWindow, read: ReadOfUser) -> UserMessagesPage:
    """Return a page of a user's messages in all chats."""
    span, page = window
    found, archived_before = await read(span, page.limit, page.start)
    listed = page.build(found.items, found.next)
    return UserMessagesPage(listed.items, listed.next, archived_before)


def _build_chat_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/messages/between", opt={"rule": READ}, dependencies=WINDOW)
    async def list_messages_between(
        chat: PathId, actor: Actor, window: Window
    ) -> Page[frames.Message]:
        """List the messages of a chat that were sent in a time range.

        Messages that are deleted, expired or hidden by the user are left out. Archived messages are
        included. The most recent messages may be missing; the history has them.
        """
        read = functools.partial(container.message_queries.list_chat, actor, ChatId(chat))
        return await _list(window, read)

    @get("/v1/chats/{chat:str}/messages/active", opt={"rule": READ}, dependencies=ORDERED)
    async def list_active_messages(
        chat: PathId, actor: Actor, window: Window
    ) -> Page[frames.Message]:
        """List the messages in a chat that have not been deleted."""
        read = functools.partial(container.message_queries.list_active, actor, ChatId(chat))
        return await _list(window, read)

    @get("/v1/chats/{chat:str}/messages/with-files", opt={"rule": READ}, dependencies=WINDOW)
    async def list_messages_with_files(
        chat: PathId, actor: Actor, window: Window
    ) -> Page[frames.Message]:
        """List the messages with files in a chat."""
        read = functools.partial(container.message_queries.list_files, actor, ChatId(chat))
        return await _list(window, read)

    return [list_messages_between, list_active_messages, list_messages_with_files]


def _build_own_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/me/messages", opt={"rule": READ}, dependencies=WINDOW)
    async def list_own_messages(
        actor: Actor, window: Window, direction: Direction = None
    ) -> Page[frames.Message]:
        """List the messages that the user sent and received in all chats, groups included.

        Covers the user's current chats, but only messages sent while the user was a member.
        Includes archived messages, and messages that are not in DynamoDB yet.
        """
        read = functools.partial(container.messages_of_all_chats.list_page, actor, actor, direction)
        return await _list(window.narrow(direction), read)

    @get("/v1/me/sent", opt={"rule": READ}, dependencies=WINDOW)
    async def list_sent(actor: Actor, window: Window) -> Page[frames.Message]:
        """List the messages that the user sent, in all chats that they may still read.

        Archived messages are included. The most recent messages may be missing.
        """
        read = functools.partial(container.sent_and_received.list_page, actor, "sent")
        return await _list(window, read)

    @get("/v1/me/received", opt={"rule": READ}, dependencies=WINDOW)
    async def list_received(actor: Actor, window: Window) -> Page[frames.Message]:
        """List the messages that others sent to the user in direct chats.

        Archived messages are included. The most recent messages may be missing.
        """
        read = functools.partial(container.sent_and_received.list_page, actor, "received")
        return await _list(window, read)

    return [list_own_messages, list_sent, list_received]


def _build_admin_chat_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/admin/chats/{chat:str}/messages", opt={"rule": READ_ANY}, dependencies=WINDOW)
    async def list_any_messages(chat: PathId, window: Window) -> Page[frames.Message]:
        """List the messages of any chat, optionally in a time range."""
        read = functools.partial(container.message_queries.list_chat, None, ChatId(chat))
        return await _list(window, read)

    @get("/v1/admin/chats/{chat:str}/messages/active", opt={"rule": READ_ANY}, dependencies=ORDERED)
    async def list_any_active(chat: PathId, window: Window) -> Page[frames.Message]:
        """List the messages in any chat that have not been deleted."""
        read = functools.partial(container.message_queries.list_active, None, ChatId(chat))
        return await _list(window, read)

    return [list_any_messages, list_any_active, *_build_admin_user_routes(container)]


def _build_admin_user_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/admin/users/{user:str}/messages", opt={"rule": READ_ANY}, dependencies=WINDOW)
    async def list_messages_of_user(
        user: PathId, window: Window, direction: Direction = None
    ) -> Page[frames.Message]:
        """List the messages that a user sent and received in all chats, as the user sees them.

        Exception: messages that the user deleted only for themselves are included.
        """
        read = functools.partial(
            container.messages_of_all_chats.list_page, None, UserId(user), direction
        )
        return await _list(window.narrow(direction), read)

    @get("/v1/admin/users/{user:str}/sent", opt={"rule": READ_ANY}, dependencies=WINDOW)
    async def list_sent_by_user(user: PathId, window: Window) -> UserMessagesPage:
        """List the messages that a user sent, in any chat.

        Archived messages are left out: see `archived_before`.
        """
        read = functools.partial(container.message_queries.list_sent, None, UserId(user))
        return await _list_of_user(window, read)

    @get("/v1/admin/users/{user:str}/received", opt={"rule": READ_ANY}, dependencies=WINDOW)
    async def list_received_by_user(user: PathId, window: Window) -> UserMessagesPage:
        """List the messages that others sent to a user in direct chats.

        Archived messages are left out: see `archived_before`.
        """
        read = functools.partial(container.message_queries.list_received, None, UserId(user))
        return await _list_of_user(window, read)

    return [list_messages_of_user, list_sent_by_user, list_received_by_user]
