"""Bounds on the work of a search: interrupted queries, and CPU time on the event loop.

The searches run in this process, with an index in SQLite. The fakes return the texts in the index,
so the event loop does nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest
import pytest_asyncio

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.search.engines.sqlite_fts import SqliteEngine
from chatserver.features.search.model import (
    Document,
    DocumentRef,
    Engine,
    HitPage,
    IndexChanges,
    IndexerState,
    IndexQuery,
    Order,
)
from chatserver.features.search.query import parse_query
from chatserver.features.search.service import CHECKED_MAX, MATCHED_CHARS_MAX, MessageSearch
from chatserver.features.search.work_budget import WorkBudget
from chatserver.protocol import codec, frames
from chatserver.protocol.request_costs import CPU_MS_PER_TOKEN, SEARCH
from chatserver.service.history.history_pages import TierPage
from tests.support.deadlines import EXIT_S
from tests.support.loop_cpu import measure_loop
from tests.support.servers.processes import eventually

ANN = UserId("ann")
DEADLINE_S = 60.0
PAID_S = (SEARCH + 5) * CPU_MS_PER_TOKEN / 1000
LOOP_S_MAX = 0.01  # CPU time of the event loop for one callback
# Each word is in all documents, but no document has the phrases, so FTS5 compares all positions.
TEXT = "a b " * 1000
QUERY = " ".join(f'"{"a b " * size}b"' for size in range(1, 7))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> SqliteEngine:
    """An index of long messages with the same two words."""
    engine = SqliteEngine(tmp_path_factory.mktemp("index") / "messages-0.sqlite", is_writer=True)
    engine.load()
    documents = [Document("g-1", seq, seq * 10, "ann", TEXT) for seq in range(1, 501)]
    changes = IndexChanges({DocumentRef(each.chat, each.seq): each for each in documents})
    engine.apply(changes, IndexerState(token=1))
    return engine


@pytest.mark.parametrize("order", Order)
def test_query_that_exceeds_its_time_returns_its_thread(engine: SqliteEngine, order: Order) -> None:
    """SQLite interrupts it, and the connection can be used for the next query."""
    query = parse_query(QUERY, "ann")
    started = time.thread_time()
    with pytest.raises(Unavailable, match="did not respond in time"):
        engine.find(IndexQuery(query, ["g-1"], order, 10, None, 0, WorkBudget(0.02)))
    used_s = time.thread_time() - started

    page = engine.find(
        IndexQuery(parse_query("a", "ann"), ["g-1"], order, 10, None, 0, WorkBudget(DEADLINE_S))
    )

    assert used_s < 0.5
    assert len(page.hits) == 10


def test_query_of_a_cancelled_request_returns_its_thread(engine: SqliteEngine) -> None:
    """The thread ends shortly after `cancel`, although the deadline is far."""
    budget = WorkBudget(DEADLINE_S)
    begun, ended = threading.Event(), threading.Event()

    def find() -> None:
        begun.set()
        with pytest.raises(Unavailable):
            while True:
                engine.find(
                    IndexQuery(
                        parse_query(QUERY, "ann"), ["g-1"], Order.NEWEST, 10, None, 0, budget
                    )
                )
        ended.set()

    thread = threading.Thread(target=find)
    thread.start()
    assert begun.wait(DEADLINE_S)
    budget.cancel()

    assert ended.wait(DEADLINE_S)
    thread.join(EXIT_S)


def test_work_of_a_request_that_is_over_does_not_start() -> None:
    """Work that waited for a thread until the request was cancelled takes no CPU time."""
    budget = WorkBudget(DEADLINE_S)
    budget.cancel()

    with pytest.raises(Unavailable):
        budget.run(lambda: pytest.fail("it has started"))

    assert budget.cpu_s == 0


class FakeTiers:
    """The chats and messages of one user; all messages have the same text."""

    async def list_ids(self, _: UserId) -> list[str]:
        return ["g-1"]

    async def list_blocked(self, _: UserId) -> set[UserId]:
        return set()

    async def get_page(self, _: UserId, frame: frames.History) -> TierPage:
        seq = cast("int", frame.before) - 1
        message = frames.Message(seq, seq * 10, "g-1", f"m{seq}", "ann", f"r{seq}", "text", TEXT)
        return TierPage([codec.encode(message)], "hot", has_more=False)


class Charged:
    """The tokens that were charged to each user."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}

    def add(self, user: str, cost: int) -> None:
        self.tokens[user] = self.tokens.get(user, 0) + cost


@pytest_asyncio.fixture
async def charged() -> Charged:
    return Charged()


@pytest_asyncio.fixture
async def search(engine: SqliteEngine, charged: Charged) -> MessageSearch:
    """The search use case over the index of `engine`."""
    return make_search(engine, charged)


def make_search(engine: Engine, charged: Charged) -> MessageSearch:
    tiers: Any = FakeTiers()
    return MessageSearch(
        engines=[engine], chats=tiers, members=tiers, history=tiers, blocks=tiers,
        get_partition=lambda _: 0, clock=SystemClock(), charge=charged.add,
    )  # fmt: skip


# Phrases that each text has very often: the dearest ones to compare.
PHRASES = " ".join(f'"{"a b " * size}a"' for size in range(1, 7))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("query", [PHRASES, "a b", QUERY], ids=["phrases", "words", "no match"])
async def test_search_in_long_messages_takes_no_time_of_the_event_loop(
    search: MessageSearch, order: Order, query: str
) -> None:
    """Callbacks of the event loop take the same CPU time for long texts as for short ones."""
    longest_s = []
    for _ in range(5):
        with measure_loop() as cpu:
            try:
                found, _ = await search.find(ANN, query, order, 20, None)
            except Unavailable:  # a slow machine: only the time of the event loop matters here
                found = []
        assert not found or len(found) == 20
        longest_s.append(cpu.longest_s)
        if longest_s[-1] < LOOP_S_MAX:
            break

    assert min(longest_s) < LOOP_S_MAX


class BusyEngine:
    """An engine whose query takes CPU time until its request is over."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def find(self, query: IndexQuery) -> HitPage:
        started = time.thread_time()
        self.begun.set()
        while not query.budget.is_over() or time.thread_time() - started < PAID_S:
            pass
        self.ended.set()
        return HitPage([], [], None)


async def test_cancelled_search_ends_its_thread_and_is_charged_for_its_cpu_time(
    charged: Charged,
) -> None:
    """The charge is what the CPU time exceeds the cost of a search by."""
    engine = BusyEngine()
    search = make_search(cast("Engine", engine), charged)
    task = asyncio.create_task(search.find(ANN, "a", Order.NEWEST, 20, None))
    await asyncio.to_thread(engine.begun.wait, DEADLINE_S)

    task.cancel()
    await asyncio.wait([task])

    assert await asyncio.to_thread(engine.ended.wait, DEADLINE_S)
    await eventually(lambda: charged.tokens, what="the search is charged")
    assert charged.tokens[ANN] >= 4


async def test_search_matches_a_bounded_number_of_characters(search: MessageSearch) -> None:
    """A page ends early, and the next one continues after it."""
    seen: list[bytes] = []
    position = None
    for _ in range(3):
        found, position = await search.find(ANN, "a", Order.NEWEST, 50, position)
        seen += [each.json for each in found]

    assert CHECKED_MAX * len(TEXT) <= MATCHED_CHARS_MAX
    assert len(set(seen)) == len(seen) == 150
