"""Words of deleted messages leave the files of the index, not only its results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from chatserver.domain.clock import SystemClock
from chatserver.features.search.engines.sqlite_fts import SqliteEngine
from chatserver.features.search.model import Document, DocumentRef, IndexChanges, IndexerState
from chatserver.features.search.worker.indexer import Indexer

T = TypeVar("T")
WORD = "zanzibarsecret"


def make_indexer(engine: SqliteEngine) -> Indexer:
    """Return an indexer whose maintenance can run without its stores."""
    indexer = cast(Any, Indexer.__new__(Indexer))

    async def run_in_thread(work: Callable[[], T]) -> T:
        return work()

    indexer._container = SimpleNamespace(clock=SystemClock())
    indexer._engine, indexer._number, indexer._erasures = engine, 0, set()
    indexer._run_in_thread = run_in_thread
    indexer._maintenance_at = indexer._compaction_at = float("-inf")
    indexer._is_compacting = indexer._is_compaction_new = indexer._has_deleted_words = False
    indexer._state = IndexerState(token=1)
    return cast(Indexer, indexer)


async def test_words_of_a_deleted_message_leave_the_files(tmp_path: Path) -> None:
    """Whoever copies the index later cannot read what users deleted before."""
    engine = SqliteEngine(tmp_path / "messages-0.sqlite", is_writer=True)
    engine.load()
    documents = [Document("g-1", 1, 10, "ann", WORD), Document("g-1", 2, 20, "ann", "other words")]
    engine.apply(
        IndexChanges({DocumentRef(each.chat, each.seq): each for each in documents}),
        IndexerState(token=1),
    )
    indexer = make_indexer(engine)

    await indexer._apply(IndexChanges(removed={DocumentRef("g-1", 1)}))
    await indexer._run_maintenance()
    while await indexer._run_compaction_step():
        pass

    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(b"other" in data for data in files)
    assert not any(WORD[4:].encode() in data for data in files)
    assert not indexer._has_deleted_words
    engine.close()
