"""Helpers for tests of sharded chats: layouts in the table, and raw reads."""

from __future__ import annotations

import collections
from typing import Any

from chatserver.config import Warm
from chatserver.domain.write_sharding import Layout, parse_layout
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.messages.sharded_chats import HORIZON_KEY, LAYOUTS_KEY
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES


async def put_layouts(client: DynamoClient, settings: Warm, **chats: str) -> None:
    """Write layouts to the table, as if these chats had been sharded this way."""
    row: dict[str, Any] = {
        **LAYOUTS_KEY,
        "changed": {"N": "1"},
        "chats": {"M": {chat.replace("_", "-"): {"S": text} for chat, text in chats.items()}},
        "floors": {"M": {}},
    }
    horizon = {**HORIZON_KEY, "rev": {"N": "1"}, "changed": {"N": "1"}, "upto": {"N": "0"}}
    for item in (row, horizon):
        await client.call("put_item", {"TableName": DIRECTORY.name_in(settings), "Item": item})


async def read_layout(client: DynamoClient, settings: Warm, chat: str) -> Layout:
    """Return the layout of a chat from the table."""
    request = {"TableName": DIRECTORY.name_in(settings), "Key": LAYOUTS_KEY, "ConsistentRead": True}
    item = (await client.call("get_item", request)).get("Item", {})
    text = item.get("chats", {"M": {}})["M"].get(chat)
    return Layout() if text is None else parse_layout(text["S"])


async def raw_seqs(client: DynamoClient, settings: Warm, chat: str) -> dict[str, list[int]]:
    """Return the seqs in each partition of a chat, without removal markers, by a Scan."""
    found: dict[str, list[int]] = collections.defaultdict(list)
    request: dict[str, Any] = {"TableName": MESSAGES.name_in(settings), "ConsistentRead": True}
    while True:
        answer = await client.call("scan", request)
        for item in answer["Items"]:
            partition = item["chatid"]["S"]
            if partition.partition("#")[0] == chat and "#gone" not in partition:
                found[partition].append(int(item["seq"]["N"]))
        if (last := answer.get("LastEvaluatedKey")) is None:
            return {partition: sorted(seqs) for partition, seqs in sorted(found.items())}
        request["ExclusiveStartKey"] = last
