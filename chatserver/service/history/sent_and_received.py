"""A user's sent messages and received direct messages, in all tiers.

::

    index `sender` or `receiver` ─► page without archived ts ─► page of the index
    user's archive position ──────► other page ───────────────► merge of the user's chats,
                                                                also for all later pages

The indexes are the fast path: they have only messages in the warm tier. A page is read from an
index only if its whole range is later than the user's archive position. The first page that is not,
and all pages after it, are merged from the user's chats
(`chatserver.service.history.messages_of_all_chats`).

A page token of an index has the index key, and in `passed` the chats with a returned message at its
ts, so that the merge neither repeats nor skips messages with the same ts.
"""

from __future__ import annotations

from chatserver.domain.ids import UserId
from chatserver.protocol.frames import Message
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.messages_of_all_chats import PASSED, Direction, MessagesOfAllChats
from chatserver.warm.dynamo.paging import QueryPage, Token


class SentAndReceived:
    """Lists the messages that a user sent, or received in direct chats."""

    def __init__(self, queries: MessageQueries, all_chats: MessagesOfAllChats) -> None:
        self._queries = queries
        self._all_chats = all_chats

    async def list_page(
        self,
        user: UserId,
        direction: Direction,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> QueryPage[Message]:
        """Return a page of the user's messages. `start` is the previous page's `next`.

        Guarantees:
            Only messages that the user may read now (guarantee P7), in their current version.
            Includes archived messages. Messages that are not stored yet may be missing.
            No message is repeated or skipped if messages are archived between or during pages.
            Cost: as `MessageQueries.list_sent`, until a page reaches archived messages. That page
                also costs as much as one of `MessagesOfAllChats.list_page`, and later pages cost
                only that.

        Raises:
            BadRequest: the token belongs to another list.
            Unavailable: the tier with the next message does not respond.
        """
        if start is None or PASSED in start:
            page = await self._find_index_page(user, direction, times, limit, start)
            if page is not None:
                return page
        if start is not None and PASSED in start:
            start = {"ts": start["ts"], "chat": "", PASSED: start[PASSED]}
        return await self._all_chats.list_page(
            reader=user,
            user=user,
            direction=direction,
            times=times,
            limit=limit,
            start=start,
            is_direct=direction == "received",
        )

    async def _find_index_page(
        self,
        user: UserId,
        direction: Direction,
        times: TimeRange,
        limit: int,
        start: Token | None,
    ) -> QueryPage[Message] | None:
        """Return a page of the index; None if archived messages may be in its range."""
        index = self._queries.list_sent if direction == "sent" else self._queries.list_received
        key = None if start is None else {k: v for k, v in start.items() if k != PASSED}
        page, archived_before = await index(user, user, times, limit, key)
        # The index is sorted by ts, so the page covers the range between the two tokens.
        edge = page.next if times.is_newest_first else start
        earliest = times.from_ts if edge is None else int(edge["ts"])
        if archived_before is not None and earliest < archived_before:
            return None
        if page.next is None:
            return page
        ts = page.next["ts"]
        passed = [each.chat for each in page.items if each.ts == ts]
        if start is not None and start["ts"] == ts:
            passed += str(start[PASSED]).split()
        return QueryPage(page.items, {**page.next, PASSED: " ".join(passed)})
