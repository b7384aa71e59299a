"""Data types of the search index, and the interface of its engines. No I/O.

The index has one *document* per message, and the state of the indexer. The state contains the last
indexed backlog entry of each Redis partition.

The index may be stale, so each match is read from the tiers and checked before it is returned.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

import msgspec

from chatserver.features.search.query import Query
from chatserver.features.search.work_budget import WorkBudget

DISABLED: Final = "search: this server has no search index"
ORIGIN: Final = "0-0"  # the position before the first backlog entry


class Document(NamedTuple):
    """A message in the index. `ts` is in microseconds, `expires_at` in seconds (0: never)."""

    chat: str
    seq: int
    ts: int
    sender: str
    tokens: str  # separated by spaces
    has_file: bool = False
    expires_at: int = 0


class DocumentRef(NamedTuple):
    """Identifies a document by its chat and seq."""

    chat: str
    seq: int


@dataclasses.dataclass(slots=True)
class IndexChanges:
    """Changes to the index. A document is in at most one of the three collections."""

    documents: dict[DocumentRef, Document] = dataclasses.field(default_factory=dict)
    # New tokens of documents that are already in the index.
    edits: dict[DocumentRef, str] = dataclasses.field(default_factory=dict)
    removed: set[DocumentRef] = dataclasses.field(default_factory=set)

    @property
    def size(self) -> int:
        """The number of changed documents."""
        return len(self.documents) + len(self.edits) + len(self.removed)


class Rebuild(msgspec.Struct):
    """Progress of a rebuild, which reads all chats, or of a catch-up.

    A catch-up reads only the entries after `since_ts` (a rebuild: 0). `part`: how many of the
    `parts` parts are complete. `chats` and `messages`: how many have been processed so far. If
    `is_fresh`, documents that the rebuild did not find are deleted last.
    """

    request: str
    parts: int
    started_ms: int
    since_ts: int = 0
    is_fresh: bool = True
    part: int = 0
    chats: int = 0
    messages: int = 0
    finished_ms: int = 0


class IndexerState(msgspec.Struct):
    """The state of an indexer, stored in the index itself.

    `token`: fencing token of the writer. `positions`: the last indexed backlog entry of each Redis
    partition. `epochs`: the epoch of each Redis partition. `generation` increases with each
    rebuild. `rules`: version of the tokenizer rules. `catch_up`: progress of indexing the changes
    that were made while no indexer was running.
    """

    token: int = 0
    positions: dict[int, str] = {}
    epochs: dict[int, str] = {}
    generation: int = 1
    rules: int = 0
    rebuild: Rebuild | None = None
    catch_up: Rebuild | None = None


class Order(enum.StrEnum):
    """The order of results."""

    NEWEST = "newest"
    RELEVANCE = "relevance"


class Hit(NamedTuple):
    """A match in the index that has not been checked yet."""

    chat: str
    seq: int
    ts: int
    score: float = 0.0  # only with `Order.RELEVANCE`


class HitCursor(NamedTuple):
    """Start of a page of hits; each engine defines the meaning of `offset`."""

    ts: int
    offset: int = 0


class HitPage(NamedTuple):
    """A page of hits. `cursors` has the cursor after each hit.

    `next` is the cursor of the next page, or None if this is the last page.
    """

    hits: list[Hit]
    cursors: list[HitCursor]
    next: HitCursor | None


class Stats(NamedTuple):
    """Size of an index."""

    documents: int
    bytes: int


class IndexQuery(NamedTuple):
    """A query of an index partition."""

    query: Query
    chats: Collection[str]
    order: Order
    limit: int
    start: HitCursor | None
    now_s: int
    budget: WorkBudget


class Engine(Protocol):
    """A partition of the index. Calls block, so they must run in a thread.

    One process, which holds a lease, writes; any number of processes read. A reader sees all
    changes that were applied before its call.
    """

    def load(self) -> IndexerState:
        """Return the stored state."""

    def apply(self, changes: IndexChanges, state: IndexerState) -> None:
        """Apply changes and store the state.

        Guarantees:
            Durable on return. If interrupted, the state is not newer than the documents, and a
            repeated call completes the changes.

        Raises:
            LostRace: another process is writing to the index, with a later fencing token.
        """

    def expire(self, now_s: int) -> int:
        """Delete the documents that have expired; return how many there were."""

    def find(self, request: IndexQuery) -> HitPage:
        """Return at most `limit` hits in `chats`.

        Guarantees:
            Cost: bounded. A page may be short or empty, and still have a `next`.

        Raises:
            Unavailable: the query was still running when the budget was over.
        """

    def erase_sender(self, sender: str) -> int:
        """Delete all documents from a sender; return how many there were."""

    def drop_older(self, generation: int, limit: int) -> int:
        """Delete up to `limit` documents from before `generation`; return how many were deleted."""

    def compact(self, *, is_first: bool) -> bool:
        """Run one step of a compaction; return True after the last step.

        After the last step, the files contain nothing from documents deleted before the first step.
        """

    def maintain(self) -> None:
        """Optimize the index for queries, unless this was done recently."""

    def measure(self) -> Stats:
        """Return the size of the index."""

    def close(self) -> None:
        """Close all connections."""


def group_redis_partitions(count: int, redis_partitions: int) -> dict[int, list[int]]:
    """Assign the Redis partitions to `count` index partitions."""
    used = min(count, redis_partitions)
    return {number: list(range(number, redis_partitions, used)) for number in range(used)}
