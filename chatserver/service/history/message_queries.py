"""Message queries: messages by time, sender, receiver or content type.

::

    page of rows ──► filter by chats the reader may read ──► items ──► current state for the reader
       ▲  index or table     directory: membership periods      overlay: unapplied changes
       └──────────────── until the page is full ◄──────────────  hidden, deleted, expired: left out

Unlike a history page, a query page has gaps: it omits deleted and unreadable messages. The most
recent messages may be missing, because they have not been stored yet. A query for one chat includes
its archive (`chatserver.service.history.chat_query_pages`). A query across chats reads only
warm-tier indexes, and returns the ts before which archived messages may be missing;
`chatserver.service.history.sent_and_received` continues with the archive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import attrs

from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol.frames import Message
from chatserver.service.history.chat_query_pages import ChatQuery, ChatQueryPage, TimeRange
from chatserver.service.history.message_query_filter import QueryFilter, QuerySources
from chatserver.warm.archive.user_archive_positions import Direction, UserArchivePositions
from chatserver.warm.dynamo.paging import QueryPage, Token, check_limit


class IndexPage(NamedTuple):
    """A page of messages from all of a user's chats.

    Messages sent before `archived_before` (a ts) may be missing, because they may be archived. If
    it is None, no message in the time range is missing.
    """

    page: QueryPage[Message]
    archived_before: int | None


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageQueries:
    """Message query use cases. `reader` is None for the host application, which reads all chats.

    `start` is the previous page's `next`, or None for the first page.
    """

    _sources: QuerySources
    _members: MemberCheck
    _users: UserArchivePositions

    async def list_chat(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> QueryPage[Message]:
        """Return messages that were sent to a chat in a time range.

        Guarantees:
            Only messages that the reader may read (guarantee P7) and has not deleted for
                themselves.
            Each message includes every change that was acked before the call.
            A page that is not full is the last one, unless it reached a work limit, or a tier did
                not respond.
            No tier is skipped: if a tier does not respond, the page ends before that tier's
                messages, or the call fails.
            Cost: two Queries and two Redis calls. If the reader may not read the chat from its
                start, also a GetItem and up to 15 small reads. For archived messages, also one
                `ColdLog.read` per 100 to 1,000 entries, for up to `ARCHIVED_ENTRIES_MAX` entries.

        Raises:
            NotFound: the chat does not exist, or the reader is not a member.
            Unavailable: the tier with the next messages does not respond.
        """
        query = self._sources.messages.list_chat
        return await self._query_chat(query, reader, chat, times, limit=limit, start=start)

    async def list_active(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> QueryPage[Message]:
        """Return a chat's messages that are not deleted.

        Same guarantees and errors as `list_chat`. Additional cost: an index Query and a
        BatchGetItem.
        """
        query = self._sources.messages.list_active
        return await self._query_chat(query, reader, chat, times, limit=limit, start=start)

    async def list_files(
        self, reader: UserId | None, chat: ChatId, times: TimeRange, limit: int, start: Token | None
    ) -> QueryPage[Message]:
        """Return a chat's messages that have files.

        Same guarantees, costs and errors as `list_active`. While the file index is incomplete, the
        cost grows with the length of the chat.
        """
        query = self._sources.messages.list_with_files
        return await self._query_chat(
            query,
            reader,
            chat,
            times,
            limit=limit,
            start=start,
            is_match=lambda each: bool(each.attachments),
        )

    async def _query_chat(
        self,
        query: ChatQuery,
        reader: UserId | None,
        chat: ChatId,
        times: TimeRange,
        limit: int,
        start: Token | None,
        is_match: Callable[[Message], bool] = lambda _message: True,
    ) -> QueryPage[Message]:
        check_limit(limit)
        view = await self._open_chat_view(reader, chat)
        from_ts = max(times.from_ts, await self._find_first_ts(chat, view.get_first_seq(chat)))
        if from_ts > times.to_ts:
            return QueryPage([], None)
        page = ChatQueryPage(
            query=query,
            is_match=is_match,
            view=view,
            chat=chat,
            limit=limit,
            is_descending=times.is_newest_first,
        )
        return await page.read(dataclasses.replace(times, from_ts=from_ts), start)

    async def list_sent(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> IndexPage:
        """Return messages that a user sent, in all chats that the reader may read.

        Guarantees:
            Same as `list_chat`, but without archived messages; see `IndexPage.archived_before`.
            Cost: an index Query, a BatchGetItem per 50 chats and per 100 messages, two Redis calls
                per chat on the page, and a GetItem.
        """
        return await self._query_user("sent", reader, user, times, limit=limit, start=start)

    async def list_received(
        self, reader: UserId | None, user: UserId, times: TimeRange, limit: int, start: Token | None
    ) -> IndexPage:
        """Return the direct messages that a user received. Same guarantees as `list_sent`."""
        return await self._query_user("received", reader, user, times, limit=limit, start=start)

    async def _query_user(
        self,
        direction: Direction,
        reader: UserId | None,
        user: UserId,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> IndexPage:
        messages = self._sources.messages
        query = messages.list_sent if direction == "sent" else messages.list_received
        page = await query(
            user,
            times.from_ts,
            times.to_ts,
            limit=limit,
            start=start,
            newest_first=times.is_newest_first,
            view=QueryFilter(self._sources, reader),
        )
        # Read the newest archived ts after the index, to cover messages archived during that read.
        newest = await self._users.find(direction, user)
        if newest is None or newest < times.from_ts:
            return IndexPage(page, None)
        return IndexPage(page, newest + 1)

    async def _open_chat_view(self, reader: UserId | None, chat: ChatId) -> QueryFilter:
        view = QueryFilter(self._sources, reader)
        if reader is None:
            await self._sources.memberships.get_chat(chat)
        else:
            span = await self._members.get_reader(chat, reader)
            view.spans[chat] = await self._members.add_periods(chat, reader, span)
        await view.select_chats([chat])
        return view

    async def _find_first_ts(self, chat: ChatId, first: int) -> int:
        """Return the ts of the first message that the reader may read, or 0 if unknown.

        The query starts there, because earlier messages would be filtered out.
        """
        older = self._sources.older
        if first <= 1 or first <= older.get_cached_top(chat).seq:
            return 0
        entries = await older.list_after(chat, first - 1, 1)
        return entries[0].ts if entries else 0
