"""Bytes of messages, chats and users in Redis, DynamoDB and S3: constants of `chatserver plan`.

    python -m tests.benchmarks.storage_footprint [--out F.json]

Opens chats on a new Redis and DynamoDB API server, commits and persists messages of several sizes
as the server does, and reads the memory of each kind of key from Redis. The texts of segments are
parts of the documentation. `chatserver plan --constants` accepts the file of `--out`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import redis

from chatserver.cold.segment_format import encode_segment
from chatserver.dev.servers import Server, dynamodb_launch, redis_launch
from chatserver.domain.ids import ChatId, UserId
from chatserver.protocol import codec
from chatserver.protocol.frames import Ack, Event, Message
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.benchmarks.output import out_option, write_figures
from tests.integration.warm.support import settings_for
from tests.integration.workers.support import make_direct, open_container
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
from tests.support.servers.processes import free_port, redis_url_of

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (100, 200, 400, 800, 1600)
MESSAGES = 400


class Bench:
    """A Redis and a DynamoDB server, emptied before each measurement."""

    def __init__(self, url: str, dynamodb: str) -> None:
        self.url, self.dynamodb = url, dynamodb

    async def count(
        self, directs: int, groups: int, members: int, messages: int, size: int
    ) -> tuple[RedisUsage, list[dict[str, Any]]]:
        """Return the memory of chats with messages in Redis, and the items of one chat."""
        redis.Redis.from_url(self.url).flushall()
        settings = settings_for(self.dynamodb)
        async with open_dynamodb(settings) as client:
            await apply_tables(client, settings, poll_s=0.01)
            async with open_container(self.url, settings) as container:
                chats = await make_chats(container, directs, groups, members)
                await Run(container, chats, messages, size).send_messages()
                held = await measure_redis(container)
                table = settings.table_prefix + "messages"
                return held, await items_of(client, table, ChatId(chats[0].chat))

    async def measure_user_state(self, chats: int) -> float:
        """Return the bytes of a user's state with `chats` chats."""
        redis.Redis.from_url(self.url).flushall()
        settings = settings_for(self.dynamodb)
        async with open_dynamodb(settings) as client:
            await apply_tables(client, settings, poll_s=0.01)
        async with open_container(self.url, settings) as container:
            for n in range(chats):
                await make_direct(container, UserId("user000000"), UserId(f"peer{n:06}"))
            await container.user_loader.load_user(UserId("user000000"))
            held = await measure_redis(container)
        return float(held.bytes["box"])


def fit(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return slope and intercept of a linear regression."""
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    return slope, intercept


async def measure(bench: Bench) -> dict[str, tuple[float, str, str]]:
    """Return the constants, each with its value, unit and source."""
    logs, inbox, refs = [], 0.0, 0.0
    for size in SIZES:
        held, items = await bench.count(10, 0, 0, MESSAGES, size)
        logs.append((size, held.bytes["log"] / held.entries["log"]))
        inbox = held.bytes["inbox"] / held.entries["inbox"]
        refs = held.bytes["refs"] / held.entries["refs"]
        direct = items[-1]
    _, items = await bench.count(0, 2, 10, MESSAGES, SIZES[-1])
    few, _ = await bench.count(200, 0, 0, 2, 200)
    ten, _ = await bench.count(0, 200, 10, 2, 200)
    per_member = (ten.bytes["members"] - few.bytes["members"]) / 200 / 8
    heads = few.bytes["chat"] + few.bytes["members"] + few.bytes["idle"]
    box_one, box_ten = await bench.measure_user_state(1), await bench.measure_user_state(10)
    per_box_chat = (box_ten - box_one) / 9
    slope, intercept = fit(logs)
    group = items[-1]
    how = "tests.benchmarks.storage_footprint: MEMORY USAGE of Redis"
    return {
        "redis_bytes_per_log_entry": (intercept, "bytes", f"{how}, line through {logs}"),
        "redis_bytes_per_body_byte": (slope, "", f"{how}, slope of that line"),
        "redis_bytes_per_inbox_entry": (inbox, "bytes", f"{how}, of {MESSAGES} entries"),
        "redis_bytes_per_stream": (few.bytes["log"] / few.keys["log"], "bytes", f"{how}, of 2"),
        "redis_bytes_per_ref": (refs, "bytes", f"{how}, of {MESSAGES} in a hash"),
        "redis_bytes_per_chat": (heads / 200 - 2 * per_member, "bytes", how),
        "redis_bytes_per_member": (per_member, "bytes", f"{how}, 10 members and 2"),
        "redis_bytes_per_user": (
            few.bytes["seqs"] / 400 + box_one - per_box_chat,
            "bytes",
            f"{how}: seqs and box",
        ),
        "redis_bytes_per_box_chat": (per_box_chat, "bytes", f"{how}, 10 chats and 1"),
        "item_bytes_direct": (
            item_bytes(direct) - SIZES[-1],
            "bytes",
            "tests.benchmarks.storage_footprint: an item without its text, user ids of 10 letters",
        ),
        "item_bytes_group": (item_bytes(group) - SIZES[-1], "bytes", "likewise"),
        "index_bytes_direct": (index_bytes(direct), "bytes", "likewise, 100 a row as AWS counts"),
        "index_bytes_group": (index_bytes(group), "bytes", "likewise"),
        "stored_bytes_per_item": (100, "bytes", "of storage, as AWS counts"),
        **_wire(),
        **_segments(),
    }


def _message(seq: int, body: str) -> Message:
    chat = "d-7stilpv4coryocayx3wwpq2eev6323xx"
    ids = f"01K{seq:023d}", "user000000", f"01J{seq:023d}"
    return Message(seq, 1_795_000_000_000_000 + seq, chat, *ids, "text", body)


def _wire() -> dict[str, tuple[float, str, str]]:
    message = _message(1234, "")
    event = Event("1a2b3c4d5e6f7a8b", 5678, "message", message.chat, 1234, message)
    ack = Ack(17, message.ref, message.mid, 1234, message.ts, False, "hot")
    how = "tests.benchmarks.storage_footprint: JSON, without a text, TLS and TCP"
    return {
        "frame_bytes": (len(codec.encode(event)) + 4, "bytes", how),
        "ack_bytes": (len(codec.encode(ack)) + 4, "bytes", how),
    }


def _segments() -> dict[str, tuple[float, str, str]]:
    made = [_message(n, body_of(n, 200)) for n in range(1, 1001)]
    segment, data = encode_segment(made)
    line = segment.raw_bytes / len(made) - sum(len(m.body.encode()) for m in made) / len(made)
    how = "tests.benchmarks.storage_footprint: 1,000 pieces of 200 bytes of the documentation, zstd"
    return {
        "segment_line_bytes": (line, "bytes", how),
        "segment_packed_share": (len(data) / segment.raw_bytes, "", how),
    }


@click.command()
@out_option
def main(out: Path | None) -> None:
    """Measure, and print the constants of `chatserver plan`."""
    with tempfile.TemporaryDirectory() as folder:
        (data := Path(folder, "redis")).mkdir()
        store = Server(redis_launch(data, free_port(), appendonly="no")).start()
        dynamodb = Server(dynamodb_launch(Path(folder), free_port())).start()
        try:
            found = asyncio.run(measure(Bench(redis_url_of(store), dynamodb.endpoint)))
        finally:
            store.kill()
            dynamodb.kill()
    constants = {
        name: {"value": float(f"{value:.4g}"), "unit": unit, "how": how}
        for name, (value, unit, how) in found.items()
    }
    result = {"schema": 1, "benchmark": "footprint", "constants": constants}
    write_figures(result, out)
    for name, each in constants.items():
        sys.stdout.write(f"{name}: {each['value']:g} {each['unit']}\n")


if __name__ == "__main__":
    main()
