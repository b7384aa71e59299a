"""Bytes of messages, chats and users in Redis, DynamoDB and S3: constants of `chatserver plan`.

    python -m tests.benchmarks.storage_footprint [--messages 400] [--chats 200] [--out F.json]

Opens chats on a new Redis and DynamoDB API server, commits and persists messages of several sizes
as the server does, and reads the memory of each kind of key from Redis. The texts of segments are
parts of the documentation. `chatserver plan --constants` accepts the file of `--out`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import AsyncIterator
from typing import Any

import click

from chatserver.cold.segment_format import encode_segment
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId
from chatserver.protocol import codec
from chatserver.protocol.frames import Ack, Event, Message
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.integration.warm.support import settings_for
from tests.integration.workers.support import Gateway, make_direct, make_group, open_container
from tests.support.footprint import (
    RedisUsage,
    Run,
    body_of,
    index_bytes,
    item_bytes,
    items_of,
    make_chats,
    measure_redis,
)
from tests.support.servers.processes import redis_client, redis_url_of

HOW = "tests.benchmarks.storage_footprint"
SIZES = (100, 200, 400, 800, 1600)
PIECES = 1000
FEW = 2  # messages of a chat with a small hash
Constants = dict[str, tuple[float, str, str]]  # value, unit, and how it was measured


@dataclasses.dataclass(frozen=True)
class Stores:
    """A Redis and a DynamoDB server, emptied before each measurement."""

    redis_url: str
    dynamodb: str

    @contextlib.asynccontextmanager
    async def open_empty(self) -> AsyncIterator[StorageContainer]:
        with redis_client(self.redis_url) as client:
            client.flushall()
        settings = settings_for(self.dynamodb)
        async with open_dynamodb(settings) as client:
            await apply_tables(client, settings, poll_s=0.01)
        async with open_container(self.redis_url, settings) as container:
            yield container

    async def count(
        self, directs: int, groups: int, members: int, messages: int, size: int
    ) -> tuple[RedisUsage, list[dict[str, Any]]]:
        """Return the memory of chats with messages in Redis, and the items of one chat."""
        async with self.open_empty() as container:
            chats = await make_chats(container, directs, groups, members)
            await Run(container, chats, messages, size).send_messages()
            held = await measure_redis(container)
            table = container.settings.warm.table_prefix + "messages"
            return held, await items_of(container.dynamodb, table, ChatId(chats[0].chat))

    async def measure_inbox_entry(self, messages: int) -> float:
        """Return the bytes of an inbox entry with one message, as most commits append it."""
        sender, receiver = UserId("user000000"), UserId("user000001")
        async with self.open_empty() as container:
            chat, gateway = await make_group(container, sender, receiver), Gateway(container.hot)
            for n in range(messages):
                await gateway.send(chat, str(n), sender=sender)
            held = await measure_redis(container)
            return held.bytes["inbox"] / held.entries["inbox"]

    async def measure_user_state(self, chats: int) -> float:
        """Return the bytes of a user's state with `chats` chats."""
        user = UserId("user000000")
        async with self.open_empty() as container:
            for n in range(chats):
                await make_direct(container, user, UserId(f"peer{n:06}"))
            await container.user_loader.load_user(user)
            return float((await measure_redis(container)).bytes["box"])


async def measure(stores: Stores, messages: int, chats: int) -> Constants:
    """Return the constants of Redis and of items."""
    logs, chat = [], 0.0
    for size in SIZES:
        held, items = await stores.count(10, 0, 0, messages, size)
        logs.append((size, held.bytes["log"] / held.entries["log"]))
        chat = held.bytes["chat"] / held.keys["chat"]
        direct = items[-1]
    _, items = await stores.count(0, 2, 10, messages, SIZES[-1])
    group = items[-1]
    few, _ = await stores.count(chats, 0, 0, FEW, 200)
    ten, _ = await stores.count(0, chats, 10, FEW, 200)
    per_member = (ten.bytes["members"] - few.bytes["members"]) / chats / 8
    # A hash of few refs is a listpack, and one of many a table. The line through both has the sum.
    per_ref = (chat - few.bytes["chat"] / chats) / (messages - FEW)
    heads = few.bytes["chat"] + few.bytes["members"] + few.bytes["idle"]
    per_chat = heads / chats - FEW * per_ref
    box_one, box_ten = await stores.measure_user_state(1), await stores.measure_user_state(10)
    per_box_chat = (box_ten - box_one) / 9
    inbox = await stores.measure_inbox_entry(messages)
    slope, intercept = statistics.linear_regression(*zip(*logs, strict=True))
    redis, item = "MEMORY USAGE of Redis", "an item without its text, user ids of 10 letters"
    return {
        "redis_bytes_per_log_entry": (intercept, "bytes", f"{redis}, line through {logs}"),
        "redis_bytes_per_body_byte": (slope, "", f"{redis}, slope of that line"),
        "redis_bytes_per_inbox_entry": (inbox, "bytes", f"{redis}, of {messages} entries"),
        "redis_bytes_per_stream": (few.bytes["log"] / few.keys["log"], "bytes", f"{redis}, of 2"),
        "redis_bytes_per_ref": (per_ref, "bytes", f"{redis}, chats with {messages} and {FEW}"),
        "redis_bytes_per_chat": (per_chat - 2 * per_member, "bytes", redis),
        "redis_bytes_per_member": (per_member, "bytes", f"{redis}, 10 members and 2"),
        "redis_bytes_per_user": (box_one - per_box_chat, "bytes", f"{redis}: box"),
        "redis_bytes_per_box_chat": (per_box_chat, "bytes", f"{redis}, 10 chats and 1"),
        "item_bytes_direct": (item_bytes(direct) - SIZES[-1], "bytes", item),
        "item_bytes_group": (item_bytes(group) - SIZES[-1], "bytes", item),
        "index_bytes_direct": (index_bytes(direct), "bytes", "100 a row, as AWS counts"),
        "index_bytes_group": (index_bytes(group), "bytes", "100 a row, as AWS counts"),
        "stored_bytes_per_item": (100, "bytes", "of storage, as AWS counts"),
    }


def _message(seq: int, body: str) -> Message:
    chat = "d-7stilpv4coryocayx3wwpq2eev6323xx"
    ids = f"01K{seq:023d}", "user000000", f"01J{seq:023d}"
    return Message(seq, 1_795_000_000_000_000 + seq, chat, *ids, "text", body)


def measure_encodings() -> Constants:
    """Return the constants of frames and of segments."""
    message = _message(1234, "")
    event = Event("1a2b3c4d5e6f7a8b", 5678, "message", message.chat, 1234, message)
    ack = Ack(17, message.ref, message.mid, 1234, message.ts, False, "hot")
    made = [_message(n, body_of(n, 200)) for n in range(1, PIECES + 1)]
    segment, data = encode_segment(made)
    line = (segment.raw_bytes - sum(len(each.body.encode()) for each in made)) / PIECES
    frame = "JSON, without a text, TLS and TCP"
    pieces = f"{PIECES:,} pieces of 200 bytes of the documentation, zstd"
    return {
        "frame_bytes": (len(codec.encode(event)) + 4, "bytes", frame),
        "ack_bytes": (len(codec.encode(ack)) + 4, "bytes", frame),
        "segment_line_bytes": (line, "bytes", pieces),
        "segment_packed_share": (len(data) / segment.raw_bytes, "", pieces),
    }


@benchmark(
    click.option(
        "--messages",
        default=400,
        show_default=True,
        type=click.IntRange(min=FEW + 1),
        help="Per chat.",
    ),
    click.option("--chats", default=200, show_default=True, help="With two messages each."),
)
async def main(bench: Bench, messages: int, chats: int) -> Figures:
    stores = Stores(redis_url_of(bench.start_redis()), bench.start_dynamodb().endpoint)
    found = {**await measure(stores, messages, chats), **measure_encodings()}
    constants = {
        name: {"value": float(f"{value:.4g}"), "unit": unit, "how": f"{HOW}: {how}"}
        for name, (value, unit, how) in found.items()
    }
    return {"schema": 1, "constants": constants}


if __name__ == "__main__":
    main()
