"""Indexer: updates the search index from the backlogs of committed messages.

::

    backlog ─► changes ─► engine: documents and position, durable ─► `indexed` in Redis
       ▲                                                                  │
       └──────── one step of a catch-up or rebuild, if one is running ◄───┘

The engine stores the backlog position together with the documents. The position is then recorded in
Redis, which retains later entries. An indexer that is killed at any point therefore resumes at the
position in the index. The backlog may lack entries after that position if no indexer has run for
more than a minute or Redis has lost data. A catch-up then reads the chats active since that time.

Entries are indexed before they are persisted, so search does not wait for DynamoDB. If Redis loses
such an entry, its document is not returned, because no tier has the message. During a catch-up or
rebuild, only persisted entries are indexed. Each step waits until all indexed entries are
persisted, so the tiers have all changes up to the index's backlog position.

Only the lease holder writes an index partition. The lease token is stored in the index state, so a
process that was paused cannot write after another process has taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.domain.clock import get_now_ms
from chatserver.domain.ids import new_id
from chatserver.errors import LostRace, Unavailable
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.engines.registry import open_engine
from chatserver.features.search.hot import WORK, IndexFeed
from chatserver.features.search.model import (
    ORIGIN,
    Engine,
    IndexChanges,
    IndexerState,
    Rebuild,
)
from chatserver.features.search.tokenizer import RULES_VERSION
from chatserver.features.search.worker.chat_sweep import CLOCK_SKEW_S, PARTS, ChatSweep
from chatserver.features.search.worker.index_changes import add_entries
from chatserver.features.search.worker.search_rpc_worker import SearchRpcWorker
from chatserver.hot.chats.persist_backlog import BacklogEntry, CommitEntry
from chatserver.hot.redis.keys import parse_entry_id
from chatserver.hot.worker_leases import hold_all
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from workers.partition_workers import run_with_restarts
from workers.persist.backlog_pieces import sort_entries

log = structlog.get_logger()

LEASE_S: Final = 6.0
POLL_S: Final = 0.25
IDLE_POLL_S: Final = 1.0
IDLE_AFTER_S: Final = 10.0
READ_MAX: Final = 200  # maximum backlog entries per read; each holds up to redis.batch_max messages
REQUESTS_INTERVAL_S: Final = 1.0
MAINTENANCE_INTERVAL_S: Final = 2.0
COMPACTION_INTERVAL_S = 21_600.0  # minimum time between compactions after deletions
DROPPED_MAX: Final = 2_000  # maximum outdated documents deleted per step after a rebuild
SWEEP_RETRY_S: Final = 5.0
DAY_S: Final = 86_400
T = TypeVar("T")


class Indexer:
    """The indexer of one index partition."""

    def __init__(
        self,
        *,
        container: StorageContainer,
        engine: Engine,
        number: int,
        partitions: Sequence[int],
        owner: str,
    ) -> None:
        self._container = container
        self._engine = engine
        self._number = number
        self._partitions = partitions
        self._feed = IndexFeed(container.hot)
        self._leases = {
            partition: container.make_lease(WORK, owner, LEASE_S, partition)
            for partition in partitions
        }
        # One thread, because engines open a connection per thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"search-{number}")
        self._state = IndexerState()
        self._sweep: ChatSweep | None = None
        self._erasures: list[str] = []
        self._is_compacting = False
        self._is_compaction_new = False
        # True if the files may have words of deleted messages; unknown at the start.
        self._has_deleted_words = True
        self._compaction_at = float("-inf")
        self._requests_at = self._maintenance_at = self._sweep_at = self._active_at = float("-inf")

    async def run(self) -> None:
        """Index until cancelled. The leases are released on exit.

        Raises:
            Unavailable: Redis, a tier or the index is unavailable; start the worker again.
            LostRace: another process holds a lease; start the worker again.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._thread.shutdown)
            for lease in self._leases.values():
                await stack.enter_async_context(lease.release_on_exit())
            while True:
                if await self._renew_leases():
                    break
                await asyncio.sleep(LEASE_S / 5)
            try:
                await self._start()
                await self._run_loop()
            finally:
                # Another process may take over and report the metrics. If none does, an alert for
                # missing metrics fires.
                metrics.SEARCH_LAG.remove(str(self._number))
                metrics.SEARCH_DOCUMENTS.remove(str(self._number))
                metrics.SEARCH_BYTES.remove(str(self._number))
                with contextlib.suppress(asyncio.CancelledError):
                    await self._run_in_thread(self._engine.close)

    async def _run_in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def _renew_leases(self) -> bool:
        return await hold_all(self._leases.values())

    async def _start(self) -> None:
        """Load the index state, and start a rebuild or catch-up if the index is incomplete."""
        self._state = await self._run_in_thread(self._engine.load)
        state, hot = self._state, self._container.hot
        state.token = max(state.token, *(lease.token for lease in self._leases.values()))
        if state.rules != RULES_VERSION:
            # The index is new, or was written with other tokenizer rules.
            self._start_rebuild(new_id())
            state.rules = RULES_VERSION
        for partition in self._partitions:
            position = state.positions.get(partition, "")
            epoch = hot.get_epoch(partition)
            resumed = await self._feed.record_position(self._leases[partition], partition, position)
            # In a new epoch, the backlog may lack entries that have been persisted.
            is_known = state.epochs.get(partition) == epoch
            if position and not (resumed.is_complete and is_known):
                self._start_catch_up(position, is_known=is_known)
            if not resumed.is_complete:
                state.positions[partition] = resumed.persisted
            state.epochs[partition] = epoch
        await self._apply(IndexChanges())
        log.info("search.started", partition=self._number, rebuilding=state.rebuild is not None)

    def _start_rebuild(self, request: str) -> None:
        self._state.generation += 1
        self._state.rebuild = Rebuild(request, PARTS, get_now_ms(self._container.clock))
        self._sweep = None
        log.info("search.rebuild_started", partition=self._number, request=request)

    def _start_catch_up(self, position: str, *, is_known: bool) -> None:
        """Start a catch-up, which indexes the entries committed after a backlog position."""
        since_ts = max(1, (int(position.partition("-")[0]) - CLOCK_SKEW_S * 1000) * 1000)
        if self._state.catch_up is not None:
            since_ts = min(since_ts, self._state.catch_up.since_ts)
            is_known = is_known and self._state.catch_up.parts == 1
        now_s = self._container.clock.time()
        age_s = now_s - since_ts / 1_000_000
        # Redis lists only chats that were active within `chat_idle_s`.
        has_activity = is_known and age_s < self._container.settings.redis.chat_idle_s - DAY_S
        self._state.catch_up = Rebuild(
            new_id(),
            1 if has_activity else PARTS,
            int(now_s * 1000),
            since_ts=since_ts,
            is_fresh=False,
        )
        self._sweep = None
        log.warning("search.catch_up_started", partition=self._number, since_s=int(age_s))

    async def _run_loop(self) -> None:
        clock = self._container.clock
        self._active_at = clock.monotonic()
        while await self._renew_leases():
            for partition in self._partitions:
                epoch = self._container.hot.get_epoch(partition)
                if epoch != self._state.epochs[partition]:
                    raise Unavailable("search: Redis has lost data; restarting to catch up")
            has_more = await self._index_new()
            await self._handle_requests()
            has_more |= await self._run_sweep_step()
            has_more |= await self._run_compaction_step()
            await self._run_maintenance()
            if has_more:
                continue
            is_idle = clock.monotonic() - self._active_at > IDLE_AFTER_S
            await sleep_aligned(IDLE_POLL_S if is_idle else POLL_S)
        raise LostRace("search: another process holds the lease")

    # new entries

    async def _index_new(self) -> bool:
        """Index new entries; return whether there are more."""
        changes, positions, has_more = IndexChanges(), {}, False
        oldest_ms = now_ms = get_now_ms(self._container.clock)
        for partition in self._partitions:
            position = self._state.positions.get(partition, ORIGIN)
            upto = await self._feed.get_persisted(partition) if self._is_sweeping else "+"
            entries = await self._feed.list_entries(partition, position, upto, READ_MAX)
            if not entries:
                continue
            await self._run_in_thread(functools.partial(_add_entries, changes, entries))
            positions[partition] = entries[-1].id
            has_more |= len(entries) == READ_MAX
            oldest_ms = min(oldest_ms, int(entries[0].id.partition("-")[0]))
        metrics.SEARCH_LAG.labels(str(self._number)).set((now_ms - oldest_ms) / 1000)
        if positions:
            self._active_at = self._container.clock.monotonic()
            self._state.positions |= positions
            failpoint("search.before_apply")
            await self._apply(changes)
            failpoint("search.after_apply")
        for partition, lease in self._leases.items():
            position = self._state.positions.get(partition, ORIGIN)
            if partition in positions or self._container.clock.monotonic() > self._requests_at:
                # Record even an unchanged position: trimming ignores a position that is old.
                resumed = await self._feed.record_position(lease, partition, position)
                if not resumed.is_complete:
                    raise Unavailable(
                        "search: the backlog was trimmed before it was indexed; "
                        "restarting to catch up"
                    )
        failpoint("search.after_record")
        return has_more

    async def _apply(self, changes: IndexChanges) -> None:
        # Copy the state, because it may change while the thread runs.
        state = msgspec.json.decode(msgspec.json.encode(self._state), type=IndexerState)
        await self._run_in_thread(lambda: self._engine.apply(changes, state))
        self._has_deleted_words |= bool(changes.removed or changes.edits)
        metrics.SEARCH_CHANGES.inc(changes.size)

    # requests

    async def _handle_requests(self) -> None:
        clock = self._container.clock
        if clock.monotonic() < self._requests_at:
            return
        requests = await self._feed.list_requests(self._number)
        self._requests_at = clock.monotonic() + REQUESTS_INTERVAL_S
        current = self._state.rebuild
        if requests.rebuild and (current is None or current.request != requests.rebuild):
            self._start_rebuild(requests.rebuild)
            await self._apply(IndexChanges())
        new = [user for user in requests.erasures if user not in self._erasures]
        if new:
            await self._erase(new)

    async def _erase(self, users: Sequence[str]) -> None:
        """Delete the users' documents; the compaction that follows completes the request."""
        while await self._index_new():  # index all entries committed before the request
            if not await self._renew_leases():
                raise LostRace("search: another process holds the lease")
        for user in users:
            count = await self._run_in_thread(functools.partial(self._engine.erase_sender, user))
            log.info("search.user_erased", documents=count)
        failpoint("search.in_erasure")
        self._erasures += users
        self._is_compacting = self._is_compaction_new = True

    async def _run_compaction_step(self) -> bool:
        """Run one step of a compaction; return whether more steps remain."""
        if not self._is_compacting:
            return False
        is_first, self._is_compaction_new = self._is_compaction_new, False
        if not await self._run_in_thread(lambda: self._engine.compact(is_first=is_first)):
            return True
        self._is_compacting = False
        for user in self._erasures:
            await self._feed.finish_erasure(self._number, user)
        self._erasures.clear()
        return False

    # sweeps

    async def _run_sweep_step(self) -> bool:
        """Run one step of a catch-up or rebuild; return whether more steps may remain."""
        state = self._state
        progress = state.catch_up or state.rebuild
        if progress is None or progress.finished_ms:
            return False
        if self._container.clock.monotonic() < self._sweep_at or not await self._is_persisted():
            return False
        if self._sweep is None or self._sweep.progress is not progress:
            self._sweep = ChatSweep(
                container=self._container,
                feed=self._feed,
                partitions=self._partitions,
                progress=progress,
                has_activity=progress is state.catch_up and progress.parts == 1,
            )
        try:
            changes = await self._sweep.next_changes()
        except Unavailable as exc:  # continue to index new messages while a tier is down
            log.warning("search.sweep_failed", partition=self._number, error=exc.message)
            self._sweep = None
            self._sweep_at = self._container.clock.monotonic() + SWEEP_RETRY_S
            return False
        if changes is not None:
            failpoint("search.before_sweep_apply")
            await self._apply(changes)
            failpoint("search.after_sweep_apply")
            return True
        if progress.is_fresh:
            drop = functools.partial(self._engine.drop_older, state.generation, DROPPED_MAX)
            if await self._run_in_thread(drop):
                return True
        self._sweep = None
        progress.finished_ms = get_now_ms(self._container.clock)
        if progress is state.catch_up:
            state.catch_up = None
        await self._apply(IndexChanges())
        log.info("search.sweep_finished", partition=self._number, messages=progress.messages)
        return True

    @property
    def _is_sweeping(self) -> bool:
        rebuild = self._state.rebuild
        is_rebuilding = rebuild is not None and not rebuild.finished_ms
        return is_rebuilding or self._state.catch_up is not None

    async def _is_persisted(self) -> bool:
        for partition in self._partitions:
            persisted = await self._feed.get_persisted(partition)
            if parse_entry_id(persisted) < parse_entry_id(
                self._state.positions.get(partition, ORIGIN)
            ):
                return False
        return True

    async def _run_maintenance(self) -> None:
        clock = self._container.clock
        if clock.monotonic() < self._maintenance_at:
            return
        self._maintenance_at = clock.monotonic() + MAINTENANCE_INTERVAL_S
        expired = await self._run_in_thread(lambda: self._engine.expire(int(clock.time())))
        self._has_deleted_words |= expired > 0
        if self._has_deleted_words and clock.monotonic() >= self._compaction_at:
            self._has_deleted_words = False
            self._compaction_at = clock.monotonic() + COMPACTION_INTERVAL_S
            self._is_compacting = self._is_compaction_new = True
        await self._run_in_thread(self._engine.maintain)
        stats = await self._run_in_thread(self._engine.measure)
        metrics.SEARCH_DOCUMENTS.labels(str(self._number)).set(stats.documents)
        metrics.SEARCH_BYTES.labels(str(self._number)).set(stats.bytes)


def _add_entries(changes: IndexChanges, entries: Sequence[BacklogEntry]) -> None:
    pieces, _ = sort_entries([entry for entry in entries if isinstance(entry, CommitEntry)])
    add_entries(changes, [write.item.message for piece in pieces for write in piece.writes])


async def run_search(container: StorageContainer, owner: str) -> None:
    """Index the partitions that no other process leases, and run searches for gateways.

    Runs until cancelled. Does nothing if search is disabled.

    Raises:
        Unavailable: all of Redis is unavailable; start the worker again.
    """
    search = container.get(SearchContainer)
    if not search.is_enabled:
        log.info("search.disabled")
        await asyncio.Event().wait()
    partitions = search.partitions

    async def serve_calls(_: int) -> None:
        await SearchRpcWorker(container, owner).run()

    async def index(number: int) -> None:
        await Indexer(
            container=container,
            engine=open_engine(container.settings, number, is_writer=True),
            number=number,
            partitions=partitions[number],
            owner=owner,
        ).run()

    async with open_task_group() as group:
        calls = run_with_restarts(container.hot, "search-calls", 0, serve_calls)
        group.create_task(calls, name="searches")
        for number in partitions:
            coroutine = run_with_restarts(container.hot, "search", number, index)
            group.create_task(coroutine, name=f"search-{number}")
