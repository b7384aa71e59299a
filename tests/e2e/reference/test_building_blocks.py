"""Building blocks of data modeling, as described in the DynamoDB Developer Guide."""

from __future__ import annotations

import hashlib
import time
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key  # type: ignore[import-untyped]

from tests.e2e.reference.support import (
    ARCHIVED_MIN,
    INLINE_BYTES_MAX,
    PASSWORD,
    Client,
    Server,
    open_api,
    wait_for,
)

WEEK_S = 7 * 86_400


@pytest.fixture(scope="module", autouse=True)
def closed_account(server: Server) -> tuple[str, str, str]:
    """A user who closed the account, a user whom they followed, and the receipt of the erasure.

    The erasure takes some 20 seconds, so it begins before the first test.
    """
    ann, ben = server.add_users(2)
    ann.patch("/v1/me", {"name": "Ann"})
    ann.put(f"/v1/me/following/{ben.id}")
    ann.post("/v1/me/posts", {"content": "Hello"})
    assert len(server.rows("directory", f"u#{ann.id}")) > 2
    assert len(server.rows("social", f"u#{ann.id}#post")) == 1
    assert len(server.rows("social", f"u#{ben.id}#follower")) == 1
    return ann.id, ben.id, ann.delete("/v1/me", {"password": PASSWORD})["receipt"]


def test_composite_sort_key_reads_one_part_of_a_partition(server: Server) -> None:
    """The rows of a chat share a partition; a prefix of the sort key selects one type of them."""
    ann, ben = server.add_users(2)
    chat = ann.create_group(ben)
    for text in ("one", "two"):
        ann.put(f"/v1/chats/{chat}/pins/{ann.send(chat, text)['seq']}")

    members = server.sort_keys("directory", f"c#{chat}", "m#")
    pins = server.sort_keys("directory", f"c#{chat}", "pin#")
    everything = server.sort_keys("directory", f"c#{chat}")

    assert members == sorted(f"m#{user.id}" for user in (ann, ben))
    assert [key.split("#")[1].lstrip("0") for key in pins] == ["1", "3"]
    assert {*members, *pins, f"c#{chat}"} < {*everything}
    assert [each["user"] for each in ann.pages(f"/v1/chats/{chat}/members")] == sorted(
        (ann.id, ben.id)
    )
    assert ann.pins(chat) == ["two", "one"]


def test_composite_sort_key_reads_a_range(server: Server) -> None:
    """Padded numbers sort as numbers: the pins of messages 9 to 10 are one Query."""
    ann, ben = server.add_users(2)
    chat = ann.create_group(ben)
    with ann.connect() as device:
        device.send_messages(chat, [f"text {number}" for number in range(1, 12)])
    for seq in (2, 9, 10, 11):
        ann.put(f"/v1/chats/{chat}/pins/{seq}")

    between = Key("SK").between(f"pin#{9:020d}", f"pin#{11:020d}")
    rows = server.query("directory", Key("PK").eq(f"c#{chat}") & between)

    assert [row["SK"] for row in rows] == [f"pin#{seq:020d}#{chat}" for seq in (9, 10)]
    assert ben.pins(chat) == ["text 11", "text 10", "text 9", "text 2"]


def test_user_reads_only_own_partition(server: Server) -> None:
    """All rows of a user are one item collection. The API returns only the caller's own rows."""
    ann, ben = server.add_users(2)
    ann.put(f"/v1/me/blocks/{ben.id}")
    cleo = server.add_user()

    assert [each["user"] for each in ann.pages("/v1/me/blocks")] == [ben.id]
    assert ben.pages("/v1/me/blocks") == cleo.pages("/v1/me/blocks") == []
    assert server.sort_keys("directory", f"u#{ann.id}", "block#") == [f"block#{ben.id}"]
    assert server.sort_keys("directory", f"u#{cleo.id}", "block#") == []
    assert cleo.get_refusal("GET", f"/v1/users/{ann.id}/timeline") == (404, "not_found")


def test_erasure_deletes_the_partitions_of_a_user(
    server: Server, closed_account: tuple[str, str, str]
) -> None:
    """Only a tombstone remains of a closed account."""
    user, followed, receipt = closed_account

    def is_gone() -> bool:
        parts = ("", "#follower", "#following", "#post", "#favorite", "#timeline")
        social = [server.rows("social", f"u#{user}{part}") for part in parts]
        return not any(social) and len(server.rows("directory", f"u#{user}")) == 1

    wait_for(is_gone, "the partitions are empty")
    (tombstone,) = server.rows("directory", f"u#{user}")
    assert tombstone["receipt"] == receipt and "name" not in tombstone
    assert server.rows("social", f"u#{followed}#follower") == []
    assert server.public.get(f"/v1/erasures/{receipt}")["user"] == user


def test_tenant_has_its_own_partitions(server: Server) -> None:
    """Another deployment uses the same tables; each partition key begins with its tenant."""
    tenant = {"CHAT_WARM_TENANT": "acme", "CHAT_REDIS_URL": server.redis_url(1)}
    with open_api(server, **tenant) as port:
        client = Client(port)
        name = f"tenant-{time.time_ns()}"
        granted = client.post("/v1/auth/register", {"user": name, "password": PASSWORD})
        acme = Client(port, granted["token"])
        acme.post("/v1/me/posts", {"content": "Only here"})
        client.close()
        row = f"acme/u#{name}"

        assert server.item("directory", PK=row, SK=row) is not None
        assert server.item("directory", PK=f"u#{name}", SK=f"u#{name}") is None
        assert len(server.rows("social", f"acme/u#{name}#post")) == 1
        assert acme.get(f"/v1/users/{name}")["posts"] == 1
        acme.close()
    assert server.add_user().get_refusal("GET", f"/v1/users/{name}") == (404, "not_found")


def test_sparse_index_has_only_messages_with_files(server: Server) -> None:
    """Few messages have the attribute `files_of`, so only they are in the index `files`."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ann.send(chat, "no file")
    file = server.upload(ann, chat, b"escalated", "report.txt")
    ack = ann.send(chat, "a file", attachments=[file])
    ann.send(chat, "no file either")

    rows = wait_for(
        lambda: server.query("messages", Key("files_of").eq(chat), index="files"), "the index row"
    )

    assert rows == [{"chatid": chat, "ts": ack["ts"], "files_of": chat}]
    assert ben.texts(f"/v1/chats/{chat}/messages/with-files") == ["a file"]
    assert ["files_of" in item for item in server.messages(chat)] == [False, True, False]


def test_sparse_partition_lists_open_reports_newest_first(server: Server) -> None:
    """Open reports are in a separate partition until they are resolved."""
    host, (ann, ben) = server.host_application, server.add_users(2)
    chat = ann.open_direct(ben)
    seqs = [ann.send(chat, f"spam {number}")["seq"] for number in (1, 2)]
    before_ms = int(time.time() * 1000) - 60_000
    for seq in seqs:
        ben.put(f"/v1/chats/{chat}/messages/{seq}/report", {"reason": "spam"})

    since = Key("PK").eq("reports") & Key("SK").gt(f"{before_ms:020d}")
    rows = server.query("directory", since, ScanIndexForward=False)
    mine = [row["SK"].split("#")[1:] for row in rows if f"#{chat}#" in row["SK"]]
    assert mine == [[chat, f"{seq:020d}", ben.id] for seq in reversed(seqs)]
    listed = host.pages("/v1/admin/reports", order="newest")
    assert [each["seq"] for each in listed if each["chat"] == chat] == seqs[::-1]

    for seq in seqs:
        host.post(f"/v1/chats/{chat}/reports/{seq}/{ben.id}/resolve")
    assert not any(f"#{chat}#" in key for key in server.sort_keys("directory", "reports"))
    kept = server.rows("directory", f"c#{chat}", "report#")
    assert [row["state"] for row in kept] == ["resolved", "resolved"]


def test_message_of_a_week_has_a_time_to_live(server: Server) -> None:
    """`ttl` is a number of seconds, and the TTL attribute of the table."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)

    ack = ann.send(chat, "gone in a week", expires_s=WEEK_S)
    ann.send(chat, "stays")

    first, second = server.messages(chat)
    due = ack["ts"] // 1_000_000 + WEEK_S
    assert isinstance(first["ttl"], Decimal) and abs(first["ttl"] - due) <= 1
    assert "ttl" not in second
    (message, _) = ben.get(f"/v1/chats/{chat}/messages")["messages"]
    assert message["expires_at"] == first["ttl"]
    assert {table: server.expiry_of(table) for table in ("messages", "social", "directory")} == {
        "messages": "ttl",
        "social": "ttl",
        "directory": "expires_at",
    }


def test_expired_message_is_not_read_and_then_removed(server: Server) -> None:
    """An expired message is hidden before it is deleted; then a marker keeps its position."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ann.send(chat, "short", expires_s=1)

    def read() -> Any:
        return ben.get(f"/v1/chats/{chat}/messages")["messages"][0]

    wait_for(lambda: read().get("deleted"), "it is read as deleted")
    assert read()["body"] == ""
    wait_for(lambda: not server.messages(chat), "the item is removed")
    (marker,) = server.query("messages", Key("chatid").eq(f"{chat}#gone"))
    assert marker["seq"] == read()["seq"] == 1
    assert "body" not in marker


def test_old_messages_move_to_the_archive(server: Server) -> None:
    """Old items move from DynamoDB to objects in S3; history returns them as before."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    texts = [f"old {number}" for number in range(ARCHIVED_MIN)]
    with ann.connect() as device:
        device.send_messages(chat, texts)

    segments = wait_for(lambda: server.rows("directory", f"a#{chat}", "s#"), "a segment")
    wait_for(lambda: not server.messages(chat), "the items are removed")

    (segment,) = segments
    (name,) = server.objects(f"archive/v1/{chat}/")
    assert name == f"archive/v1/{chat}/{1:020d}-{ARCHIVED_MIN:020d}.{segment['tag']}.jsonl.zst"
    stored = server.read_object(name)
    assert hashlib.sha256(stored).hexdigest() == segment["sha256"]
    assert len(stored) == segment["stored_bytes"] < segment["raw_bytes"]
    page = ben.get(f"/v1/chats/{chat}/messages", before=20, limit=10)
    assert page["tier"] == "cold"
    assert [message["body"] for message in page["messages"]] == texts[9:19]


def test_removals_are_in_the_stream_with_the_old_item(server: Server) -> None:
    """The DynamoDB Stream of the messages contains the removed items."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ack = ann.send(chat, "short", expires_s=1)

    def removed() -> list[dict[str, Any]]:
        return [item for item in server.removed("messages") if item["chatid"]["S"] == chat]

    (item,) = wait_for(removed, "the removal is in the Stream")

    assert server.describe("messages")["StreamSpecification"] == {
        "StreamEnabled": True,
        "StreamViewType": "OLD_IMAGE",
    }
    assert (item["mid"]["S"], int(item["ts"]["N"])) == (ack["mid"], ack["ts"])
    assert int(item["ttl"]["N"]) <= time.time()


def test_read_mark_changes_one_small_item(server: Server) -> None:
    """A chat is not one document: its settings and the marks of each member are separate items."""
    ann, ben = server.add_users(2)
    chat = ann.create_group(ben)
    seq = ann.send(chat, "read me")["seq"]

    def rows() -> dict[str, dict[str, Any]]:
        found = {row["SK"]: row for row in server.rows("directory", f"c#{chat}")}
        found[f"c#{chat}"].pop("due_ts", None)  # the archive worker changes it every second
        return found

    before = rows()
    ben.put(f"/v1/chats/{chat}/marks", {"read": seq})

    wait_for(lambda: rows()[f"m#{ben.id}"]["read"] == seq, "the mark is stored")
    after = rows()
    assert {key for key in after if after[key] != before.get(key)} == {f"m#{ben.id}"}
    assert ben.get("/v1/chats")["items"][0]["read"] == seq


def test_long_body_is_an_object_and_its_item_stays_small(server: Server) -> None:
    """A change of the message does not write the text again."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    text = "long " * INLINE_BYTES_MAX
    ack = ann.send(chat, text[:3900])

    ben.put(f"/v1/chats/{chat}/messages/{ack['seq']}/reaction", {"emoji": "👍"})

    def item() -> dict[str, Any]:
        return server.messages(chat)[0]

    wait_for(lambda: item().get("reactions") == {ben.id: "👍"}, "the reaction is stored")
    assert item()["body"] == "" and item()["body_bytes"] == 3900
    (name,) = server.objects(f"bodies/{chat}/")
    assert server.read_object(name).decode() == text[:3900]
    assert hashlib.sha256(server.read_object(name)).hexdigest() == item()["body_sha256"]
    assert ben.get(f"/v1/chats/{chat}/messages/{ack['seq']}")["body"] == text[:3900]


def test_busy_chat_is_written_to_several_partitions(server: Server) -> None:
    """The partitions are named `<chat>#<n>`; readers merge them."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ann.send(chat, "before")
    server.command("shards", "set", chat, "4", "--for", "1h")

    def shards() -> list[list[dict[str, Any]]]:
        parts = [Key("chatid").eq(f"{chat}#{number}") for number in range(4)]
        return [server.query("messages", part) for part in parts]

    number = 0
    while sum(map(bool, shards())) < 2:
        ann.send(chat, f"vote {number}")
        number += 1
        assert number < ARCHIVED_MIN - 1, "no item is in a shard"

    everything = [*server.messages(chat), *(item for part in shards() for item in part)]
    assert sorted(item["seq"] for item in everything) == list(range(1, number + 2))
    expected = ["before", *(f"vote {each}" for each in range(number))]
    assert ben.texts(f"/v1/chats/{chat}/messages/between", order="oldest") == expected
