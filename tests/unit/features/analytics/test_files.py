"""Metadata of Parquet files, and which files of a compacted date have the current rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.errors import CorruptData, NotFound
from chatserver.features.analytics import parquet
from chatserver.features.analytics.duckdb_query import (
    FileSnapshot,
    open_folder,
    run_query,
    select_files,
)
from chatserver.features.analytics.model import (
    FileFacts,
    compacted_key,
    day_prefix,
    get_file_id,
    is_compacted,
    object_key,
)
from tests.unit.features.analytics.test_questions import row

DATE = "2026-10-26"
PREFIX = day_prefix(DATE, "")
ROWS = parquet.build_table([row("d1", 1, 0, "ann"), row("d1", 2, 1, "ben")])
COUNT = "SELECT count(*) FROM messages"


@pytest.mark.parametrize(
    "facts",
    [
        FileFacts(),
        FileFacts(frozenset({"a"})),
        FileFacts(frozenset({f"id{n}" for n in range(5000)}), "b", is_moved=True),
        FileFacts(moves_to="c"),
    ],
)
def test_facts_are_read_from_the_end_of_a_file(facts: FileFacts) -> None:
    """The rows are the same for any facts."""
    data = parquet.encode(ROWS, facts)
    size = parquet.get_footer_bytes(data)

    assert size < len(data)
    assert parquet.decode_facts(data[-size:]) == parquet.decode_facts(data) == facts
    assert parquet.decode(data).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet", b"\x00" * 100 + b"PAR1"])
def test_other_data_is_corrupt(data: bytes) -> None:
    """A damaged file is reported, and never read as one without facts."""
    with pytest.raises(CorruptData, match="not a Parquet file"):
        parquet.decode_facts(data)


def test_replacing_rows_keeps_the_compacted_ids_and_ends_a_move() -> None:
    """A deletion rewrites a compacted file that was about to be compacted again."""
    existing = parquet.encode(ROWS, FileFacts(frozenset({"a", "b"}), "c"))

    data = parquet.replace_rows(existing, [], parquet.build_table([row("d2", 1, 0, "ann")]))

    assert data is not None
    assert parquet.decode_facts(data) == FileFacts(frozenset({"a", "b"}))


def test_compacted_files_are_detected_by_their_keys() -> None:
    """All files have an id."""
    part, day = object_key(DATE, "", "b1"), compacted_key(PREFIX, "c1")

    assert (is_compacted(part), is_compacted(day)) == (False, True)
    assert (get_file_id(part), get_file_id(day)) == ("b1", "c1")


def test_files_contained_in_a_compacted_one_are_ignored() -> None:
    """This includes compacted files that were compacted again."""
    keys = [f"{PREFIX}{name}.parquet" for name in ("part-a", "part-b", "part-c", "day-d", "day-e")]
    facts = {keys[3]: FileFacts(frozenset({"a"})), keys[4]: FileFacts(frozenset({"a", "b", "d"}))}

    assert select_files(keys, facts) == [keys[4], keys[2]]


def write_file(folder: Path, name: str, facts: FileFacts, *, is_empty: bool = False) -> None:
    path = folder / PREFIX / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parquet.encode(parquet.NO_ROWS if is_empty else ROWS, facts))


def test_copied_folder_has_each_row_once_or_is_refused(tmp_path: Path) -> None:
    """A copy with an emptied file but without the compacted one would miss rows."""
    moved = FileFacts(moves_to="c1", is_moved=True)
    write_file(tmp_path, "part-a", FileFacts(moves_to="c1"))
    write_file(tmp_path, "part-b", moved, is_empty=True)
    with pytest.raises(NotFound, match="copy the files again"):
        open_folder(tmp_path)

    write_file(tmp_path, "day-c1", FileFacts(frozenset({"a", "b"})))

    assert run_query(open_folder(tmp_path), COUNT, 10).rows == [(2,)]


def test_query_that_reads_an_emptied_file_is_outdated(tmp_path: Path) -> None:
    """The rows of the file moved to another one after the listing."""
    write_file(tmp_path, "part-a", FileFacts())
    keys = [f"{PREFIX}part-a.parquet"]
    current = FileSnapshot(keys, {}, lambda key: (tmp_path / key).read_bytes())
    result = run_query(current.open(), COUNT, 10)
    write_file(tmp_path, "part-a", FileFacts(moves_to="c1", is_moved=True), is_empty=True)
    later = FileSnapshot(keys, {}, lambda key: (tmp_path / key).read_bytes())
    run_query(later.open(), COUNT, 10)

    assert (result.rows, current.is_outdated(), later.is_outdated()) == ([(2,)], False, True)
