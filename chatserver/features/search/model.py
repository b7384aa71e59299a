"""Values of the search index, and the interface of its engines. No I/O.

The index has a *document* per message: its place, its sender, and its tokens. It has the state of
the indexer as well: per partition of Redis, the last indexed entry of the backlog (`place`).

An index is only a hint: each result is read from the tiers again before anybody sees it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

import msgspec

from chatserver.features.search.query import Query

DISABLED: Final = "search: this server has no search index"
ORIGIN: Final = "0-0"  # precedes every entry of a backlog


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
    """A message in the index."""

    chat: str
    seq: int


@dataclasses.dataclass(slots=True)
class Changes:
    """Changes of the index. No place is in two of them."""

    documents: dict[DocumentRef, Document] = dataclasses.field(default_factory=dict)
    edits: dict[DocumentRef, str] = dataclasses.field(
        default_factory=dict
    )  # tokens of older documents
    removed: set[DocumentRef] = dataclasses.field(default_factory=set)

    @property
    def size(self) -> int:
        """The number of changed documents."""
        return len(self.documents) + len(self.edits) + len(self.removed)


class Rebuild(msgspec.Struct):
    """A rebuild: `part` of `parts` of the chats are done. `chats` and `messages` are counts.

    `since_ts`: read only entries after this time; 0: all. `is_fresh`: documents that the rebuild
    does not find are deleted at its end.
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


class State(msgspec.Struct):
    """The state of an indexer. It is stored together with what it describes.

    `token`: fencing token of the writer. `places`: per partition of Redis, the last indexed entry.
    `epochs`: the epochs of the partitions then. `generation` increases with each rebuild. `rules`:
    version of the tokenizer. `catch_up`: a rebuild of what was changed while nobody indexed.
    """

    token: int = 0
    places: dict[int, str] = {}
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
    """A candidate for a result."""

    chat: str
    seq: int
    ts: int
    score: float = 0.0  # by relevance only


class Cursor(NamedTuple):
    """Start of a page of candidates; its content is defined by the engine."""

    ts: int
    offset: int = 0


class Found(NamedTuple):
    """A page of candidates. `cursors` has the cursor after each hit, `next` that after the page.

    `next` is None if there is nothing after the page.
    """

    hits: list[Hit]
    cursors: list[Cursor]
    next: Cursor | None


class Stats(NamedTuple):
    """Size of an index."""

    documents: int
    bytes: int


class Engine(Protocol):
    """A partition of the index. Calls block: they run in a thread.

    One process writes, under a lease; any number of processes read. A reader finds what was applied
    before its call.
    """

    def load(self) -> State:
        """Return the stored state."""

    def apply(self, changes: Changes, state: State) -> None:
        """Apply changes and store the state.

        Guarantees:
            Durable when it returns. If it is interrupted, the state is not newer than the
            documents, and a repeated call completes it.

        Raises:
            LostRace: another process writes the index, with a later token.
        """

    def expire(self, now_s: int) -> int:
        """Delete the documents that have expired; return their number."""

    def find(
        self,
        query: Query,
        chats: Collection[str],
        order: Order,
        limit: int,
        start: Cursor | None,
        now_s: int,
    ) -> Found:
        """Return candidates in `chats`, at most `limit`.

        Guarantees:
            Bounded work. A page may be short, or empty, and still have a `next`.
        """

    def erase_sender(self, sender: str) -> int:
        """Delete all documents of a sender; return their number."""

    def drop_older(self, generation: int, limit: int) -> int:
        """Delete at most `limit` documents of earlier generations; return their number."""

    def compact(self, *, is_first: bool) -> bool:
        """Do a part of a compaction; return whether it is complete.

        Afterwards the files have nothing of the documents that were deleted before its first part.
        """

    def maintain(self) -> None:
        """Do what keeps queries fast, if it is due."""

    def measure(self) -> Stats:
        """Return the size of the index."""

    def close(self) -> None:
        """Release connections."""


def group_redis_partitions(count: int, redis_partitions: int) -> dict[int, list[int]]:
    """Return the partitions of Redis whose chats are in each index partition."""
    used = min(count, redis_partitions)
    return {each: list(range(each, redis_partitions, used)) for each in range(used)}
