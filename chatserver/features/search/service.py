"""Search: finds candidates in the index, and checks each against the tiers.

::

    query ─► chats of the viewer ─► engine of each index partition ─► candidates, merged by order
                                                                           │
    results ◄── still matches the query? ◄── current message, if readable ◄┘

The index may be stale, so each candidate is read again. A message is not returned if it is deleted,
expired or not readable by the viewer, or if it no longer matches the query after an edit.

Queries of the index and the matching of texts run in threads, within the `WorkBudget` of the
request. Texts are matched in one thread only, because it competes with the event loop for the
interpreter lock. A search that used more CPU time than its cost covers is charged the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar, cast

import attrs
import msgspec

from chatserver.domain import page_limits
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import NotFound, Unavailable
from chatserver.features.search.frames import SearchResult, Segment
from chatserver.features.search.model import (
    DISABLED,
    Engine,
    Hit,
    HitCursor,
    HitPage,
    IndexQuery,
    Order,
)
from chatserver.features.search.query import Query, parse_query
from chatserver.features.search.text_matching import find_spans, make_snippet
from chatserver.features.search.tokenizer import normalize
from chatserver.features.search.work_budget import TIMED_OUT, WorkBudget
from chatserver.hot.chats.membership import MemberCheck
from chatserver.hot.users.blocks import HotBlocks
from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import is_message
from chatserver.protocol.request_costs import compute_search_charge
from chatserver.service.chats.user_chats import UserChats
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.service.history.history_pages import HistoryPages
from chatserver.task_groups import map_concurrently
from chatserver.telemetry import metrics

CHECKED_MAX: Final = 100  # maximum candidates checked per request
# A request matches no further texts once it has matched this many characters.
MATCHED_CHARS_MAX: Final = 400_000
READS_IN_FLIGHT_MAX: Final = 8
SEARCHES_MAX: Final = 4  # maximum concurrent searches per process; others wait
SEARCHES_PER_USER_MAX: Final = 2
WAITING_MAX: Final = 16
ALL_WAITING_MAX: Final = 256
SEARCH_S_MAX: Final = 5.0  # maximum time of a request in threads, including its waits for them
PAGE_BYTES_MAX: Final = page_limits.BYTES_MAX
Charge = Callable[[str, int], None]  # type of a function that charges a user for tokens
T = TypeVar("T")


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Start of a page: a cursor per index partition.

    A partition without a cursor is read from its start. `ended`: partitions that have no more
    candidates.
    """

    cursors: dict[int, HitCursor]
    ended: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message as JSON, and a snippet of its text in which the matches are marked."""

    json: bytes
    snippet: list[Segment]

    def encode(self) -> bytes:
        """Return the JSON of a `SearchResult`, without decoding the message."""
        message = cast("frames.Message", msgspec.Raw(self.json))
        return msgspec.json.encode(SearchResult(message, self.snippet))


class _Request(NamedTuple):
    """A search in progress. `chats`: the searched chats of each index partition."""

    viewer: UserId
    query: Query
    order: Order
    chats: Mapping[int, list[str]]
    blocked: set[UserId]
    budget: WorkBudget


class _Candidate(msgspec.Struct, frozen=True):
    partition: int
    hit: Hit
    cursor: HitCursor


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageSearch:
    """Search use case."""

    _engines: Sequence[Engine]
    _chats: UserChats
    _members: MemberCheck
    _history: HistoryPages
    _blocks: HotBlocks
    _get_partition: Callable[[ChatId], int]
    _clock: Clock
    _charge: Charge
    _threads: ThreadPoolExecutor = attrs.field(
        factory=lambda: ThreadPoolExecutor(SEARCHES_MAX, thread_name_prefix="search"), init=False
    )
    _matching_thread: ThreadPoolExecutor = attrs.field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="search-matching"), init=False
    )
    _slots: FairSemaphore = attrs.field(
        factory=lambda: FairSemaphore(
            total_max=SEARCHES_MAX,
            user_max=SEARCHES_PER_USER_MAX,
            waiting_max=WAITING_MAX,
            requests="searches",
            all_waiting_max=ALL_WAITING_MAX,
        ),
        init=False,
    )

    async def close(self) -> None:
        """Close the index. Searches in progress fail."""
        self._matching_thread.shutdown(cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)
        for engine in self._engines:
            engine.close()

    async def find(
        self, viewer: UserId, text: str, order: Order, limit: int, start: Position | None
    ) -> tuple[list[FoundMessage], Position | None]:
        """Return results, and the `start` of the next page.

        Guarantees:
            Access: only messages that the viewer may read now (guarantee P7). Messages from users
                who are blocked by the viewer, or have blocked the viewer, are omitted.
            Freshness: results include every change acked before the call. Deleted, expired
                and hidden messages are omitted.
            Bounds: `limit` results, `CHECKED_MAX` candidates, `MATCHED_CHARS_MAX`, `PAGE_BYTES_MAX`
                and `SEARCH_S_MAX`. A short page can have a next page.
            Cost: one query per index partition, and one history read per candidate.
            Cancellation: threads stop within milliseconds; the CPU time used is charged.

        Raises:
            BadRequest: the query is invalid.
            NotFound: search is disabled, or the viewer is not a member of the chat in `in:`.
            Unavailable: the index or a tier does not respond.
            RateLimited: too many searches are waiting.
        """
        query = parse_query(text, viewer)
        if not self._engines:
            raise NotFound(DISABLED)
        with metrics.SEARCH_LATENCY.labels("request").time():
            async with self._slots.hold(viewer):
                budget = WorkBudget(SEARCH_S_MAX)
                try:
                    chats = await self._list_chats(viewer, query)
                    blocked = await self._blocks.list_blocked(viewer)
                    request = _Request(
                        viewer=viewer,
                        query=query,
                        order=order,
                        chats=chats,
                        blocked=blocked,
                        budget=budget,
                    )
                    return await self._collect(request, limit, start or Position({}, []))
                finally:
                    budget.cancel()

    async def _list_chats(self, viewer: UserId, query: Query) -> Mapping[int, list[str]]:
        if query.chat is not None:
            await self._members.get_reader(ChatId(query.chat), viewer)
            chats = [ChatId(query.chat)]
        else:
            chats = await self._chats.list_ids(viewer)
        chats_by_partition: dict[int, list[str]] = {}
        for chat in chats:
            chats_by_partition.setdefault(self._get_partition(chat), []).append(chat)
        return chats_by_partition

    async def _collect(
        self, request: _Request, limit: int, position: Position
    ) -> tuple[list[FoundMessage], Position | None]:
        results: list[FoundMessage] = []
        checked = size = 0
        while checked < CHECKED_MAX and len(results) < limit:
            unfinished = [chat for chat in request.chats if chat not in position.ended]
            if not unfinished:
                return results, None
            read_max = min(max(limit, READS_IN_FLIGHT_MAX), CHECKED_MAX - checked)
            by_partition = await self._query(request, unfinished, read_max, position)
            candidates, after = merge(by_partition, request.order, read_max)
            matched = await self._check(request, [selected.hit for selected in candidates])
            for candidate, result in zip(candidates, matched, strict=False):
                checked += 1
                position = Position(
                    {**position.cursors, candidate.partition: candidate.cursor}, position.ended
                )
                if result is None:
                    metrics.SEARCH_STALE.inc()
                    continue
                results.append(result)
                size += len(result.json)
                if len(results) == limit or size >= PAGE_BYTES_MAX:
                    return results, position
            if len(matched) < len(candidates) or request.budget.matched_chars >= MATCHED_CHARS_MAX:
                return results, position
            cursors = {
                **position.cursors,
                **{n: cursor for n, cursor in after.items() if cursor is not None},
            }
            ended = [*position.ended, *(n for n, cursor in after.items() if cursor is None)]
            position = Position(cursors, ended)
        is_over = all(chat in position.ended for chat in request.chats)
        return results, None if is_over else position

    async def _query(
        self, request: _Request, partitions: Sequence[int], limit: int, position: Position
    ) -> dict[int, HitPage]:
        now_s = int(self._clock.time())

        def find(partition: int) -> HitPage:
            with metrics.SEARCH_LATENCY.labels("index").time():
                return self._engines[partition].find(
                    IndexQuery(
                        query=request.query,
                        chats=request.chats[partition],
                        order=request.order,
                        limit=limit,
                        start=position.cursors.get(partition),
                        now_s=now_s,
                        budget=request.budget,
                    )
                )

        found = await asyncio.gather(
            *(
                self._run(request, self._threads, functools.partial(find, partition))
                for partition in partitions
            )
        )
        return dict(zip(partitions, found, strict=True))

    async def _run(
        self, request: _Request, threads: ThreadPoolExecutor, work: Callable[[], T]
    ) -> T:
        """Run a part of a request in a thread. Raises Unavailable when the budget is over.

        The user is charged when the thread has stopped, also after a cancellation.
        """
        loop, budget = asyncio.get_running_loop(), request.budget

        def run() -> T:
            try:
                return budget.run(work)
            finally:
                loop.call_soon_threadsafe(self._charge_work, request.viewer, budget)

        try:
            async with asyncio.timeout(budget.left_s):
                return await loop.run_in_executor(threads, run)
        except TimeoutError:
            raise Unavailable(TIMED_OUT) from None

    def _charge_work(self, viewer: UserId, budget: WorkBudget) -> None:
        cost = compute_search_charge(budget.cpu_s) - budget.charged
        budget.charged += cost
        if cost:
            self._charge(viewer, cost)

    async def _check(self, request: _Request, hits: Sequence[Hit]) -> list[FoundMessage | None]:
        """Return the results for the first hits; None for a message that must not be returned.

        There are fewer results than hits if the budget does not suffice for all of them.
        """
        read = await map_concurrently(
            functools.partial(self._read, request.viewer),
            hits,
            in_flight_max=READS_IN_FLIGHT_MAX,
            name="search-hit",
        )

        budget = request.budget

        def match_all() -> list[FoundMessage | None]:
            matched: list[FoundMessage | None] = []
            for hit, json in zip(hits, read, strict=True):
                if matched and (budget.is_over() or budget.matched_chars >= MATCHED_CHARS_MAX):
                    break
                matched.append(match_hit(request, hit, json))
            return matched

        return await self._run(request, self._matching_thread, match_all)

    async def _read(self, viewer: UserId, hit: Hit) -> bytes | None:
        """Return the JSON of a candidate's message; None if the viewer cannot read it now."""
        # `ts` lets the warm tier read the message directly.
        frame = frames.History(0, hit.chat, before=hit.seq + 1, limit=1, ts=hit.ts + 1)
        try:
            page = await self._history.get_page(viewer, frame)
        except NotFound:
            return None  # the viewer has left the chat
        return page.messages[0] if page.messages else None


def match_hit(request: _Request, hit: Hit, json: bytes | None) -> FoundMessage | None:
    """Return the result for a candidate; None if its message must not be returned."""
    if json is None:
        return None
    message = codec.decode_message(json)
    is_same = message.seq == hit.seq and message.ts == hit.ts
    if (
        not is_same
        or message.deleted
        or not is_message(message)
        or message.sender in request.blocked
    ):
        return None
    text = normalize(message.body)
    request.budget.matched_chars += len(text)
    spans = match(request.query, message, text)
    return None if spans is None else FoundMessage(json, make_snippet(text, spans))


def match(query: Query, message: frames.Message, text: str) -> list[tuple[int, int]] | None:
    """Return where a message matches, as `(start, end)` positions; None if it does not match.

    `text` is the normalized body.
    """
    if query.sender is not None and message.sender != query.sender:
        return None
    if query.has_file and not message.attachments:
        return None
    if query.chat is not None and message.chat != query.chat:
        return None
    if query.after_ts is not None and message.ts < query.after_ts:
        return None
    if query.before_ts is not None and message.ts >= query.before_ts:
        return None
    return find_spans(query.terms, text)


def merge(
    results: Mapping[int, HitPage], order: Order, limit: int
) -> tuple[list[_Candidate], dict[int, HitCursor | None]]:
    """Merge candidates of all partitions; return the first `limit` and the partitions' cursors.

    A partition's cursor follows its last returned candidate; None if there are no more candidates.
    If a partition has candidates but none of them is returned, it keeps its old cursor and is not
    in the dictionary.
    """
    candidates = [
        _Candidate(partition, hit, cursor)
        for partition, page in results.items()
        for hit, cursor in zip(page.hits, page.cursors, strict=True)
    ]
    if order is Order.NEWEST:
        # No candidate on the partitions' next pages is newer than `horizon`. With several
        # partitions, a candidate on this page that is older than `horizon` may sort after one on
        # another partition's next page, so it is left for a later page.
        horizon = max(
            (page.next.ts for page in results.values() if page.next is not None), default=0
        )
        if len(results) > 1:
            candidates = [candidate for candidate in candidates if candidate.hit.ts >= horizon]
        # Cursors follow the order of the page, so hits with the same ts keep it.
        candidates.sort(key=lambda candidate: (-candidate.hit.ts, candidate.partition))
    else:
        candidates.sort(key=lambda candidate: (-candidate.hit.score, -candidate.hit.ts))
    best = candidates[:limit]
    after: dict[int, HitCursor | None] = {}
    for partition, page in results.items():
        own = [candidate for candidate in best if candidate.partition == partition]
        if len(own) == len(page.hits):
            after[partition] = page.next
        elif own:
            after[partition] = own[-1].cursor
    return best, after
