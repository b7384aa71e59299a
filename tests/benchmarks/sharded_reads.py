"""Cost of reading a write-sharded chat.

    python -m tests.benchmarks.sharded_reads [--messages 4000] [--reads 200] [--out F.json]

A chat on 1, 4 and 16 shards is written to the DynamoDB API server of the development environment,
with bursts and pauses. Then pages of 50 are read at random positions, with and without the ts of
the message before which they start, and the newest page. Units are the server's own count.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from chatserver.config import Warm
from chatserver.dev.servers import Server, dynamodb_launch
from chatserver.domain.write_sharding import Layout, ShardingPeriod
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, open_dynamodb
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.message_repository import MessageRepository, PersistItem
from chatserver.warm.schema.provisioning import apply_tables
from tests.integration.warm.messages.shard_support import put_layouts
from tests.integration.warm.support import settings_for
from tests.support.servers.processes import free_port

PAGE = 50
START_TS = 1_795_000_000_000_000
SHARDS = (1, 4, 16)
WRITERS = 4


class MeteredClient(DynamoClient):
    """Counts calls and their read units."""

    units = 0.0
    calls = 0

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = await super().call_once(operation, {**request, "ReturnConsumedCapacity": "TOTAL"})
        self.calls += 1
        used = answer.get("ConsumedCapacity", {})
        each = used if isinstance(used, list) else [used]
        self.units += sum(float(entry.get("CapacityUnits", 0.0)) for entry in each)
        return answer


def messages_of(chat: str, count: int) -> list[Message]:
    """Return messages of 200 bytes in bursts of 20, with pauses between the bursts."""
    chance, ts, made = random.Random(7), START_TS, []
    for seq in range(1, count + 1):
        ts += chance.randrange(50, 400_000) + (0 if seq % 20 else 30_000_000)
        made.append(
            Message(seq, ts, chat, f"01K{seq:023d}", "alice", f"01J{seq:023d}", "text", "x" * 200)
        )
    return made


async def measure(
    client: MeteredClient, reads: int, read: Callable[[int], Awaitable[int]]
) -> dict[str, float]:
    """Return the cost of a read: time, calls and units."""
    chance, took, units, calls = random.Random(11), [], client.units, client.calls
    cpu_s = time.process_time()
    for _ in range(reads):
        place = chance.randrange(200, 100_000)
        began = time.perf_counter()
        assert await read(place) == PAGE
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    return {
        "p50_ms": round(statistics.median(took), 2),
        "cpu_ms": round((time.process_time() - cpu_s) * 1000 / reads, 2),
        "p99_ms": round(took[int(len(took) * 0.99) - 1], 2),
        "queries": round((client.calls - calls) / reads, 2),
        "read_units": round((client.units - units) / reads, 2),
    }


async def run(endpoint: str, count: int, reads: int) -> dict[str, Any]:
    """Measure every number of shards."""
    settings: Warm = settings_for(endpoint)
    async with open_dynamodb(settings) as plain:
        await apply_tables(plain, settings, poll_s=0.05)
        layouts = {
            f"chat_{shards}": Layout((ShardingPeriod(1, shards),)).encode() for shards in SHARDS[1:]
        }
        await put_layouts(plain, settings, **layouts)
        client = MeteredClient(plain._sdk, settings, plain._http)
        repository = MessageRepository(client, settings)
        patterns = MessageIndexes(client, settings)
        found: dict[str, Any] = {}
        for shards in SHARDS:
            chat = f"chat-{shards}"
            made = messages_of(chat, count)
            step = -(-count // WRITERS)
            await asyncio.gather(
                *(
                    repository.put_batch([PersistItem(m, None) for m in made[n : n + step]], 600)
                    for n in range(0, count, step)
                )
            )

            def at(place: int, made: list[Message] = made) -> Message:
                return made[PAGE + place % (count - PAGE)]

            async def hinted(place: int, chat: str = chat) -> int:
                message = at(place)
                return len(await repository.list_before(chat, message.seq, PAGE, message.ts))

            async def searched(place: int, chat: str = chat) -> int:
                return len(await repository.list_before(chat, at(place).seq, PAGE))

            async def newest(_: int, chat: str = chat) -> int:
                return len(await repository.list_before(chat, None, PAGE))

            async def by_time(place: int, chat: str = chat) -> int:
                page = await patterns.list_chat(chat, to_ts=at(place).ts, limit=PAGE)
                return len(page.items)

            await hinted(0)
            found[str(shards)] = {
                "by seq, ts known": await measure(client, reads, hinted),
                "by seq, searched": await measure(client, reads // 4, searched),
                "the newest": await measure(client, reads, newest),
                "by time": await measure(client, reads, by_time),
            }
            click.echo(f"{shards}: {json.dumps(found[str(shards)])}")
    return {"benchmark": "a page of 50 by shards", "messages": count, "shards": found}


@click.command()
@click.option("--messages", default=4000, show_default=True, type=click.IntRange(500))
@click.option("--reads", default=200, show_default=True, type=click.IntRange(20))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path))
def main(messages: int, reads: int, out: Path | None) -> None:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(dynamodb_launch(Path(folder), free_port())).start()
        try:
            figures = asyncio.run(run(server.endpoint, messages, reads))
        finally:
            server.kill()
    click.echo(json.dumps(figures, indent=1))
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
