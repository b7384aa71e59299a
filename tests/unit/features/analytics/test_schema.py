"""The schema of analytics/v1 does not change for existing readers."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

from chatserver.config import Cold
from chatserver.domain.ids import ChatId
from chatserver.errors import CorruptData
from chatserver.features.analytics import parquet
from chatserver.features.analytics.model import (
    COLUMNS,
    PARTITIONS,
    ChatFacts,
    MessageRow,
    Unit,
    list_changes,
    make_rows,
    object_key,
)
from chatserver.features.analytics.table_definition import make_ddl, make_glue_input
from chatserver.protocol.frames import Message
from tests.integration.warm.support import message

DOCUMENT = Path(__file__).parents[4] / "docs" / "analytics.md"
COLD = Cold(bucket="lake")
ANY_CHAT = ChatFacts()
# Never change a line here: readers have tables with these columns. Add nullable columns at the end.
PINNED = """\
chat: string not null
chat_kind: string
seq: int64 not null
ts: timestamp[us, tz=UTC] not null
sender: string
receiver: string
kind: string not null
body: string
body_chars: int32 not null
attachments: int32 not null
attachment_bytes: int64 not null
reply_to: int64
reactions: int32 not null
is_ai: bool not null
is_deleted: bool not null
edited_at: timestamp[us, tz=UTC]"""


def test_file_schema_is_pinned() -> None:
    """Names, types, order and nullability of the columns never change."""
    written = pq.read_schema(pa.BufferReader(parquet.encode(parquet.build_table([]))))

    assert written.to_string(show_schema_metadata=False) == PINNED
    assert list(MessageRow._fields) == [each.name for each in COLUMNS]
    assert [each.name for each in PARTITIONS] == ["date", "tenant"]


def test_document_lists_the_columns() -> None:
    """The table has name, type and meaning of each column, in order."""
    text = DOCUMENT.read_text("utf-8").partition("## Schema")[2]
    described = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| (.+) \|$", text, re.MULTILINE)

    assert described == [
        (each.name, each.type + (", nullable" if each.is_nullable else ""), each.meaning)
        for each in (*COLUMNS, *PARTITIONS)
    ]


def test_keys_are_partitioned_by_date_and_tenant() -> None:
    """Without tenants the tenant is `default`."""
    assert object_key("2026-01-31", "", "b") == (
        "analytics/v1/date=2026-01-31/tenant=default/part-b.parquet"
    )
    assert "/tenant=red/" in object_key("2026-01-31", "red", "b")


def test_athena_ddl_defines_the_schema() -> None:
    """A third-party parser reads columns, types, partitions, location and projection."""
    ddl = make_ddl(COLD, [])

    parsed = sqlglot.parse_one(ddl, read="athena")
    defined = [
        (column.name, column.args["kind"].sql("hive").lower())
        for column in parsed.find_all(sqlglot.exp.ColumnDef)
    ]
    assert defined == [(each.name, each.type) for each in (*COLUMNS, *PARTITIONS)]
    assert "PARTITIONED BY" in ddl
    assert "LOCATION 's3://lake/analytics/v1/'" in ddl
    template = "s3://lake/analytics/v1/date=${date}/tenant=${tenant}/"
    assert f"'storage.location.template' = '{template}'" in ddl
    assert "'projection.tenant.values' = 'default'" in ddl
    key = template.removeprefix("s3://lake/").replace("${date}", "2026-01-31")
    assert object_key("2026-01-31", "", "x").startswith(key.replace("${tenant}", "default"))


@pytest.mark.parametrize(
    ("tenants", "location", "template"),
    [
        (["red"], "s3://lake/red/analytics/v1/", "s3://lake/${tenant}/analytics/v1/"),
        (["red", "blue"], "s3://lake/", "s3://lake/${tenant}/analytics/v1/"),
    ],
)
def test_table_of_tenants_reads_below_their_prefixes(
    tenants: list[str], location: str, template: str
) -> None:
    """With one tenant, the location is its prefix; with several, it is the bucket."""
    glue_input = make_glue_input(COLD, tenants, "2025-01-01")

    properties = glue_input["Parameters"]
    assert glue_input["StorageDescriptor"]["Location"] == location
    assert properties["storage.location.template"].startswith(template)
    assert properties["projection.tenant.values"] == ",".join(tenants)
    assert properties["projection.date.range"] == "2025-01-01,NOW+1DAY"


def test_glue_input_defines_the_schema() -> None:
    """Columns, types and properties equal those for Athena."""
    glue_input = make_glue_input(COLD, [])

    columns = [(each["Name"], each["Type"]) for each in glue_input["StorageDescriptor"]["Columns"]]
    keys = [(each["Name"], each["Type"]) for each in glue_input["PartitionKeys"]]
    assert [*columns, *keys] == [(each.name, each.type) for each in (*COLUMNS, *PARTITIONS)]
    assert glue_input["TableType"] == "EXTERNAL_TABLE"


UNIT = Unit(ChatId("d-1"), 1, 9, "b")


def rows_of(
    *entries: Message, facts: ChatFacts = ANY_CHAT, with_bodies: bool = True
) -> list[MessageRow]:
    return make_rows(entries, facts, list_changes(entries), with_bodies=with_bodies)


def test_changes_and_lost_entries_have_no_rows() -> None:
    """The row of the message contains their effect."""
    rows = rows_of(
        message(1), message(2, kind="edit", body="new", target=1), message(3, kind="member"),
        message(4, kind="lost", deleted=True),
    )  # fmt: skip

    assert [(row.seq, row.body) for row in rows] == [(1, "new")]


def test_row_of_a_deleted_message_has_no_sender_and_content() -> None:
    """Only its position in the chat is kept."""
    facts = ChatFacts("direct", ("alice", "bob"))
    (row,) = rows_of(
        message(1, reply_to=1, reactions={"bob": "+1"}),
        message(2, kind="delete", body="", target=1),
        facts=facts,
    )

    assert row == MessageRow(
        chat="d-1", chat_kind="direct", seq=1, ts=message(1).ts, sender=None, receiver=None,
        kind="text", body=None, body_chars=0, attachments=0, attachment_bytes=0, reply_to=None,
        reactions=0, is_ai=False, is_deleted=True, edited_at=None,
    )  # fmt: skip


def test_receiver_is_the_other_user_of_a_direct_chat_unless_erased() -> None:
    """Groups have none; in a chat with oneself, it is the user."""
    facts = ChatFacts("direct", ("alice", "bob"))

    assert facts.find_receiver("alice") == "bob"
    assert facts._replace(erased=["bob"]).find_receiver("alice") is None
    assert facts.find_receiver("system") is None
    assert ChatFacts("direct", ("alice",)).find_receiver("alice") == "alice"
    assert ChatFacts("group").find_receiver("alice") is None


def table(*seqs: int, chat: str = "d-1", body: str = "x") -> pa.Table:
    return parquet.build_table(rows_of(*(message(seq, chat, body=body) for seq in seqs)))


def test_replacing_rows_of_a_unit_keeps_the_others() -> None:
    """Rows of other chats and of other units of the chat are kept."""
    existing = parquet.encode(pa.concat_tables([table(1, 2, 10), table(1, chat="d-2")]))

    data = parquet.replace_rows(existing, [UNIT], table(1, 2, body="new"))

    assert data is not None
    found = [(each["chat"], each["seq"], each["body"]) for each in parquet.decode(data).to_pylist()]
    assert found == [("d-1", 1, "new"), ("d-1", 2, "new"), ("d-1", 10, "x"), ("d-2", 1, "x")]


def test_replacing_rows_with_equal_rows_changes_nothing() -> None:
    """The file need not be written."""
    existing = parquet.encode(table(1, 2, 10))

    assert parquet.replace_rows(existing, [UNIT], table(1, 2)) is None
    assert parquet.replace_rows(None, [UNIT], table(1, 2, 10)) == existing


def test_file_without_a_newer_column_is_read() -> None:
    """A column that was added later is null."""
    old = table(1).drop_columns(["edited_at"])

    assert parquet.decode(parquet.encode(old)).column("edited_at").to_pylist() == [None]


def test_other_parquet_files_and_other_data_are_corrupt() -> None:
    with pytest.raises(CorruptData, match="not a Parquet file of this table"):
        parquet.decode(b"PAR1 but not really")
    other = pa.BufferOutputStream()
    pq.write_table(pa.table({"chat": [1]}), other)
    with pytest.raises(CorruptData, match="not a Parquet file of this table"):
        parquet.decode(other.getvalue().to_pybytes())


def test_rows_are_split_by_utc_date() -> None:
    """The boundary is midnight UTC."""
    midnight = 1_767_225_600_000_000  # 2026-01-01
    rows = rows_of(message(1, ts=midnight - 1), message(2, ts=midnight))

    parts = parquet.split_by_date([parquet.build_table(rows)])

    assert {date: part["seq"].to_pylist() for date, part in parts.items()} == {
        "2025-12-31": [1], "2026-01-01": [2],
    }  # fmt: skip
    assert parquet.list_dates(rows) == ["2025-12-31", "2026-01-01"]
