"""The questions of docs/analytics.md run as documented and have the expected answers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from chatserver.errors import BadRequest, NotFound
from chatserver.features.analytics import parquet
from chatserver.features.analytics.duckdb_query import (
    FileSnapshot,
    QueryResult,
    open_folder,
    run_query,
)
from chatserver.features.analytics.model import MessageRow, object_key

DOCUMENT = Path(__file__).parents[4] / "docs" / "analytics.md"
QUESTIONS = re.findall(r"\*\*(\d+)\. .*?```sql\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
DAY = 86_400
WEEK = 7 * DAY
START = int(datetime.datetime(2026, 10, 26, 9, tzinfo=datetime.UTC).timestamp())  # a Monday


def row(chat: str, seq: int, at_s: int, sender: str | None, **changes: Any) -> MessageRow:
    """Return a row, `at_s` seconds after the start."""
    fields: dict[str, Any] = {
        "chat": chat, "chat_kind": "direct" if chat.startswith("d") else "group", "seq": seq,
        "ts": (START + at_s) * 1_000_000, "sender": sender, "receiver": None, "kind": "text",
        "body": None, "body_chars": 5, "attachments": 0, "attachment_bytes": 0, "reply_to": None,
        "reactions": 0, "is_ai": False, "is_deleted": False, "edited_at": None, **changes,
    }  # fmt: skip
    return MessageRow(**fields)


ROWS = [
    # Monday: ann and ben chat; ben answers after 30 s, ann after 30 min, ben after two hours.
    row("d1", 1, 0, "ann", receiver="ben"),
    row("d1", 2, 30, "ben", receiver="ann", reply_to=1),
    row("d1", 3, 1830, "ann", receiver="ben", reactions=2),
    row("d1", 4, 1840, "ann", receiver="ben"),
    row("d1", 5, 9040, "ben", receiver="ann", edited_at=(START + 9100) * 1_000_000),
    # A week later: ann and cat in a group; two weeks later: the same two.
    row("g1", 1, WEEK, "ann", attachments=2, attachment_bytes=3000),
    row("g1", 2, WEEK + 60, "cat"),
    row("g1", 3, WEEK + 90, None, is_deleted=True, body_chars=0),
    row("g1", 4, 2 * WEEK, "cat", attachments=1, attachment_bytes=500),
    row("g1", 5, 2 * WEEK + DAY, "ann"),
    row("s1", 1, 2 * WEEK + DAY, "echo", chat_kind="companion", is_ai=True),
]
date = datetime.date.fromisoformat
ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "1": [("2026-10-26", 5), ("2026-11-02", 2), ("2026-11-09", 1), ("2026-11-10", 2)],
    "2": [("2026-10-26", 2), ("2026-11-02", 2), ("2026-11-09", 1), ("2026-11-10", 1)],
    "3": [("2026-10", 2, 2.5), ("2026-11", 2, 2.0)],
    "4": [("direct", 5, 1), ("group", 4, 1), ("companion", 1, 1)],
    "5": [(3, 1, 2)],
    "6": [(date("2026-10-26"), 2, 1, 1), (date("2026-11-02"), 1, 1, 0)],
    "7": [(9, 10), (11, 1)],
    "8": [("g1", 4, 2), ("s1", 1, 1)],
    "9": [("2026-11", 3, 3500)],
    "10": [(11, 9.1, 9.1, 9.1, 9.1)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files as an export does."""
    export = tmp_path_factory.mktemp("files")
    half = len(ROWS) // 2
    for batch, rows in (("b1", ROWS[:half]), ("b2", ROWS[half:])):
        for day, table in parquet.split_by_date([parquet.build_table(rows)]).items():
            path = export / object_key(day, "", batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(parquet.encode(table))
    return export


def query_folder(folder: Path, sql: str, rows_max: int = 100) -> QueryResult:
    return run_query(open_folder(folder), sql, rows_max)


def without_decimals(rows: Any) -> Iterator[tuple[Any, ...]]:
    """Yield rows with numbers instead of decimals."""
    for found in rows:
        yield tuple(float(each) if isinstance(each, Decimal) else each for each in found)


def test_document_has_ten_questions() -> None:
    """Each has an expected answer here."""
    assert [number for number, _ in QUESTIONS] == list(ANSWERS)
    assert len(ANSWERS) == 10


@pytest.mark.parametrize(("number", "sql"), QUESTIONS)
def test_question_has_the_expected_answer(folder: Path, number: str, sql: str) -> None:
    """The data is eleven messages of two weeks."""
    result = query_folder(folder, sql)

    found = [
        tuple(each.date() if isinstance(each, datetime.datetime) else each for each in line)
        for line in without_decimals(result.rows)
    ]
    assert found == ANSWERS[number]
    assert not result.is_cut


@pytest.mark.parametrize(("number", "sql"), QUESTIONS)
def test_question_is_valid_in_athena(number: str, sql: str) -> None:
    """The query is parsed with Athena's dialect."""
    assert sqlglot.parse_one(sql, read="athena").find(sqlglot.exp.From) is not None, number


def test_example_of_the_document_works(folder: Path) -> None:
    """The example is the first query that a reader tries."""
    (sql,) = re.findall(r'analytics query "(SELECT .*?)"', DOCUMENT.read_text("utf-8"))

    assert query_folder(folder, sql).columns == ["date", "messages"]


def test_condition_on_the_date_skips_other_files(folder: Path) -> None:
    """No file of another date is opened."""
    opened = []

    def read(key: str) -> bytes:
        opened.append(key)
        return (folder / key).read_bytes()

    keys = [str(path.relative_to(folder)) for path in folder.rglob("*.parquet")]
    sql = "SELECT count(*) FROM messages WHERE date = '2026-11-02'"

    result = run_query(FileSnapshot(keys, {}, read).open(), sql, 10)

    assert result.rows == [(3,)]
    assert {key.split("/")[2] for key in opened} == {"date=2026-11-02"}


def test_result_above_the_limit_is_cut_and_marked(folder: Path) -> None:
    """A result of exactly the limit is complete."""
    sql = "SELECT seq FROM messages ORDER BY ts, seq"

    cut, complete = query_folder(folder, sql, 10), query_folder(folder, sql, 11)

    assert (len(cut.rows), cut.is_cut) == (10, True)
    assert (len(complete.rows), complete.is_cut) == (11, False)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW messages",
        "INSERT INTO messages VALUES (1)",
        "COPY messages TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "PRAGMA database_list",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
        "SELECT * FROM glob('/*')",
        "SELECT nothing FROM messages",
    ],
)
def test_statement_other_than_a_query_of_messages_is_refused(folder: Path, sql: str) -> None:
    """Files, the network and settings are not accessible."""
    with pytest.raises(BadRequest, match="analytics: "):
        query_folder(folder, sql)


def test_query_without_files_is_refused(tmp_path: Path) -> None:
    """The message names what is missing."""
    with pytest.raises(NotFound, match=r"has no files date=\*/tenant=\*/\*\.parquet"):
        open_folder(tmp_path)
    with pytest.raises(
        NotFound, match="nothing has been exported yet; run `chatserver analytics export"
    ):
        FileSnapshot([], {}, lambda key: b"").open()
