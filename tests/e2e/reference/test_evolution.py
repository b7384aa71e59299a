"""Changes of the data model without downtime, as in the document on production data models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from boto3.dynamodb.conditions import Key  # type: ignore[import-untyped]

from tests.e2e.reference.support import Server, indexes_of, keys_of, wait_for


def test_tables_share_the_generic_keys(server: Server) -> None:
    """Different types of items share a table under `PK` and `SK`."""
    tables = ("chat_session", "directory", "social")

    assert [keys_of(server.describe(table)) for table in tables] == [["PK", "SK"]] * 3
    assert keys_of(server.describe("messages")) == ["chatid", "ts"]


def test_sort_key_prefixes_distinguish_the_entities_of_a_partition(server: Server) -> None:
    """The document has orders and favorites; here: user, credentials, devices and blocks."""
    ann, ben = server.add_users(2)
    ann.put(f"/v1/me/blocks/{ben.id}")

    rows = server.rows("directory", f"u#{ann.id}")

    kinds = {row["SK"].split("#")[0]: set(row) - {"PK", "SK"} for row in rows}
    assert {"u", "cred", "device", "block"} <= set(kinds)
    assert "hash" in kinds["cred"] and "hash" not in kinds["u"] | kinds["device"]


def test_attribute_of_a_newer_release_survives_changes(server: Server) -> None:
    """During a rolling update, processes keep attributes that they do not know."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ack = ann.send(chat, "first")
    server.dynamodb.Table("chat_messages").update_item(
        Key={"chatid": chat, "ts": ack["ts"]},
        UpdateExpression="SET delivery_date = :date",
        ExpressionAttributeValues={":date": "2025-03-21"},
    )

    ann.patch(f"/v1/chats/{chat}/messages/{ack['seq']}", {"body": "second"})

    def item() -> dict[str, Any]:
        return server.messages(chat)[0]

    wait_for(lambda: item()["body"] == "second", "the edit is stored")
    assert item()["delivery_date"] == "2025-03-21"
    assert ben.get(f"/v1/chats/{chat}/messages/{ack['seq']}")["body"] == "second"


def test_migrations_are_planned_and_run_while_the_server_runs(server: Server) -> None:
    """`chatserver migrate` shows the schema version and the processes, and updates all items."""
    status = server.command("migrate", "status")
    done = server.command("migrate", "up")

    row = server.item("directory", PK="schema", SK="schema")
    assert row is not None and f"schema {row['version']}" in status
    processes = server.sort_keys("directory", "schema", "process#")
    assert processes and all(key.removeprefix("process#") in status for key in processes)
    assert f"schema {row['version']}" in done


def test_favorites_are_a_new_entity_with_a_prefix(server: Server) -> None:
    """All favorites of a user are one Query with `begins_with`."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    post = ben.post("/v1/me/posts", {"content": "Eggs"})["id"]
    seq = ben.send(chat, "Milk")["seq"]

    ann.put(f"/v1/me/favorites/posts/{ben.id}/{post}")
    ann.put(f"/v1/me/favorites/messages/{chat}/{seq}")

    partition = f"u#{ann.id}#favorite"
    posts = server.rows("social", partition, "posts#")
    messages = server.rows("social", partition, "messages#")
    assert [row["ref"] for row in posts] == [f"post#{post}#{ben.id}"]
    assert [row["ref"] for row in messages] == [f"message#{chat}#{seq:020d}"]
    saved = ann.get("/v1/me/favorites/posts")["items"]
    assert [each["post"]["content"] for each in saved] == ["Eggs"] and saved[0]["post"]["favorite"]
    saved = ann.get("/v1/me/favorites/messages")["items"]
    assert [each["message"]["body"] for each in saved] == ["Milk"]
    ann.delete(f"/v1/me/favorites/posts/{ben.id}/{post}")
    assert server.rows("social", partition, "post") == []


def test_item_and_flag_are_written_in_one_transaction(server: Server) -> None:
    """The document has a favorite and a flag in the order; here: a pin and a flag in a message."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    first, second = (ann.send(chat, text)["seq"] for text in ("pin me", "delete me"))
    ann.delete(f"/v1/chats/{chat}/messages/{second}")

    ann.put(f"/v1/chats/{chat}/pins/{first}")
    refused = ann.get_refusal("PUT", f"/v1/chats/{chat}/pins/{second}")

    assert refused == (409, "conflict")
    assert server.sort_keys("directory", f"c#{chat}", "pin#") == [f"pin#{first:020d}#{chat}"]
    flags = {item["seq"]: item.get("pinned", False) for item in server.messages(chat)}
    assert flags[first] is True and flags[second] is False
    assert ben.pins(chat) == ["pin me"]
    ann.delete(f"/v1/chats/{chat}/pins/{first}")
    assert server.sort_keys("directory", f"c#{chat}", "pin#") == []
    assert "pinned" not in server.messages(chat)[0]


def test_concurrent_changes_of_an_item_are_all_applied(server: Server) -> None:
    """Conditional writes by `rev`: no change overwrites another one."""
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    path = f"/v1/chats/{chat}/messages/{ann.send(chat, 'first')['seq']}"

    with ThreadPoolExecutor(3) as pool:
        changes = [
            pool.submit(ben.put, f"{path}/reaction", {"emoji": "👍"}),
            pool.submit(ann.put, f"{path}/reaction", {"emoji": "🎉"}),
            pool.submit(ann.patch, path, {"body": "second"}),
        ]
        newest = max(change.result()["seq"] for change in changes)

    def item() -> dict[str, Any]:
        return server.messages(chat)[0]

    wait_for(lambda: item()["rev"] == newest, "the changes are stored")
    assert item()["body"] == "second"
    assert item()["reactions"] == {ann.id: "🎉", ben.id: "👍"}


def test_indexes_are_few_and_project_only_keys(server: Server) -> None:
    """Six indexes serve all access patterns; `expires_at` hides expired messages."""
    indexes = {
        f"{table}.{name}": index
        for table in ("messages", "chat_session", "social", "directory")
        for name, index in indexes_of(server.describe(table)).items()
    }

    projections = {name: index["Projection"] for name, index in indexes.items()}
    assert keys_of(indexes["chat_session.GSI1_chat"]) == ["GSI1PK"]
    assert projections["chat_session.GSI1_chat"] == {"ProjectionType": "KEYS_ONLY"}
    assert {name: each.get("NonKeyAttributes", []) for name, each in projections.items()} == {
        "messages.sender": ["expires_at"],
        "messages.receiver": ["expires_at"],
        "messages.status": ["expires_at"],
        "messages.files": ["expires_at"],
        "chat_session.GSI1_chat": [],
        "directory.by_member": [],
    }


def test_inverted_index_lists_the_chats_of_a_user(server: Server) -> None:
    """The base table lists the members of a chat, and the index `by_member` the chats of a user."""
    ann, ben = server.add_users(2)
    chats = sorted([ann.create_group(ben), ann.create_group(ben, name="Other")])

    rows = wait_for(
        lambda: (
            len(found := server.query("directory", Key("SK").eq(f"m#{ben.id}"), "by_member")) == 2
            and found
        ),
        "the index rows",
    )

    assert [row["PK"] for row in rows] == [f"c#{chat}" for chat in chats]
    assert sorted(each["chat"] for each in ben.pages("/v1/chats")) == chats
