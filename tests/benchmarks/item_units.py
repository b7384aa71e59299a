"""DynamoDB capacity units of a message, by the attributes that the indexes of `messages` hold.

    python -m tests.benchmarks.item_units [--out F.json]

Creates a table for each choice on the DynamoDB API server, writes encoded items, and reads a page
through an index. Units are the server's own count by table and index, as AWS documents them (a
write unit per KB of an item or of its projection; a read unit per 4 KB read consistently, half of
one otherwise). Prints the tables of docs/data-model.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec

from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import build_tombstone
from chatserver.warm.dynamo import table as typed
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.messages.removed_message_markers import encode_marker
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import MESSAGES, SENDER_INDEX, MessageField, TableSchema
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.integration.warm.support import settings_for

START_TS = 1_795_000_000_000_000
PAGE = 50
OURS: Final = "keys and expiry"
# Attributes that each index holds in addition to the keys; None means the whole item.
CHOICES: Final[dict[str, tuple[str, ...] | None]] = {
    "keys": (),
    OURS: (MessageField.EXPIRES_AT,),
    "what a preview shows": (
        MessageField.EXPIRES_AT,
        MessageField.SEQ,
        MessageField.KIND,
        MessageField.SENDER,
        MessageField.BODY,
        MessageField.STATUS,
    ),
    "all": None,
}
DIRECT = direct_chat_id(UserId("alice"), UserId("bob"))
Units = dict[str, float]


def message(seq: int, size: int = 100, chat: str = DIRECT, **changes: Any) -> Message:
    """Return a message with ids of realistic length and a body of `size` bytes."""
    mid, ref = f"01K{seq:023d}", f"01J{seq:023d}"
    made = Message(seq, START_TS + seq, chat, mid, "alice", ref, "text", "x" * size)
    return msgspec.structs.replace(made, **changes)


@dataclasses.dataclass(frozen=True)
class Work:
    """An operation on a message: it replaces the item `before` with the item `after`."""

    name: str
    after: list[Item]
    before: list[Item] = dataclasses.field(default_factory=list)


def _direct(message: Message) -> Item:
    return encode_item(PersistItem(message, "bob"))


def works() -> list[Work]:
    """Return the measured operations; each writes different items."""
    expiring = message(20, expires_at=START_TS // 1_000_000 + 3600)
    edit, deletion = message(31, kind="edit", target=30), message(41, 0, kind="delete", target=40)
    to_edit, to_delete = message(30), message(40)
    edited = msgspec.structs.replace(
        to_edit, body="y" * 100, rev=31, edited_ts=edit.ts, edited_seq=31
    )
    group = encode_item(PersistItem(message(10, chat="g" + DIRECT[1:]), None))
    return [
        *(
            Work(f"a direct message of {size:,} bytes", [_direct(message(seq, size))])
            for seq, size in enumerate((100, 1_000, 4_000, 16_000))
        ),
        Work("a group's message of 100 bytes", [group]),
        Work("a direct message that expires", [_direct(expiring), encode_marker(expiring)]),
        Work(
            "an edit: its entry and the message",
            [_direct(edit), _direct(edited)],
            [_direct(to_edit)],
        ),
        Work(
            "a deletion: its entry and the message",
            [_direct(deletion), _direct(build_tombstone(to_delete, 41))],
            [_direct(to_delete)],
        ),
    ]


def table_for(choice: str) -> dict[str, Any]:
    """Return the CreateTable request of a choice."""
    includes = CHOICES[choice]
    settings = settings_for(None)
    request = make_create_request(MESSAGES, settings)
    for index in request["GlobalSecondaryIndexes"]:
        index["Projection"] = {"ProjectionType": "ALL"}
        if includes is not None:
            own = {key["AttributeName"] for key in (*request["KeySchema"], *index["KeySchema"])}
            others = [name for name in includes if name not in own]
            index["Projection"] = {"ProjectionType": "KEYS_ONLY"}
            if others:
                index["Projection"] = {"ProjectionType": "INCLUDE", "NonKeyAttributes": others}
    return request


async def measure(client: DynamoClient, choice: str) -> dict[str, Any]:
    """Return the units of all operations and of a page, measured on a new table."""
    request = table_for(choice)
    await client.call("create_table", request)
    table = request["TableName"]
    writes: dict[str, Units] = {}
    for work in works():
        for item in work.before:
            await client.call("put_item", {"TableName": table, "Item": item})
        units_used: Units = {"table": 0.0, "indexes": 0.0}
        for item in work.after:
            units = await _put(client, table, item)
            units_used = {name: units_used[name] + units[name] for name in units_used}
        writes[work.name] = units_used | {"total": sum(units_used.values())}
    return {"writes": writes, "page": await _read_page(client, choice, table)}


async def _put(client: DynamoClient, table: str, item: Item) -> Units:
    answer = await client.call(
        "put_item", {"TableName": table, "Item": item, "ReturnConsumedCapacity": "INDEXES"}
    )
    used = answer["ConsumedCapacity"]
    indexes = used.get("GlobalSecondaryIndexes", {}).values()
    return {
        "table": used["Table"]["CapacityUnits"],
        "indexes": sum(each["CapacityUnits"] for each in indexes),
    }


async def _read_page(client: DynamoClient, choice: str, table: str) -> Units:
    """Return the read units of a user's newest `PAGE` messages of 200 bytes."""
    for seq in range(100, 100 + PAGE):
        item = _direct(message(seq, 200, sender="carol"))
        await client.call("put_item", {"TableName": table, "Item": item})
    span = Span(TableSchema(table, MESSAGES.key, numbers=MESSAGES.numbers), "carol", SENDER_INDEX)
    request = typed.Table(client, span.table).build_query(span)
    request |= {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    found = await client.call("query", request)
    used: Units = {"index": found["ConsumedCapacity"]["CapacityUnits"], "items": 0.0}
    assert len(found["Items"]) == PAGE
    if CHOICES[choice] is not None:
        keys = [{name: row[name] for name in MESSAGES.key.names} for row in found["Items"]]
        assert len(await get_items(client, table, keys)) == PAGE
        request = {table: {"Keys": keys, "ConsistentRead": True}}
        answer = await client.call(
            "batch_get_item", {"RequestItems": request, "ReturnConsumedCapacity": "TOTAL"}
        )
        used["items"] = sum(each["CapacityUnits"] for each in answer["ConsumedCapacity"])
    return used | {"total": sum(used.values())}


def render(results: dict[str, Any]) -> str:
    """Return the results as tables for docs/data-model.md."""
    choices = results["choices"]
    head = "| write units | " + " | ".join(f"indexes: {name}" for name in choices) + " |"
    lines = [head, "|---" * (len(choices) + 1) + "|"]
    for work in next(iter(choices.values()))["writes"]:
        cells = [each["writes"][work] for each in choices.values()]
        texts = [f"{cell['table']:g} + {cell['indexes']:g} = {cell['total']:g}" for cell in cells]
        lines.append(f"| {work} | " + " | ".join(texts) + " |")
    pages = [each["page"] for each in choices.values()]
    texts = [f"{page['index']:g} + {page['items']:g} = {page['total']:g}" for page in pages]
    lines.append(
        f"| *read units* of a page of {PAGE} through an index, 200 bytes each | "
        + " | ".join(texts)
        + " |"
    )
    return "\n".join(lines)


@benchmark(render=render)
async def main(bench: Bench) -> Figures:
    async with open_dynamodb(settings_for(bench.start_dynamodb().endpoint)) as client:
        return {"choices": {choice: await measure(client, choice) for choice in CHOICES}}


if __name__ == "__main__":
    main()
