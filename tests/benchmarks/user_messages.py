"""Cost of the list of all messages of a user: per message written, and per page read.

    python -m tests.benchmarks.user_messages [COUNTS...] [--out F.json]

A user has 10, 100 or 1,000 direct chats with 20 messages of 200 bytes in each, on 10 random days of
the last 90. Pages of 50 are read from a new process (`first`), by scrolling back (`next`), and from
random times (`any time`). Units are the server's own count.
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click

from chatserver.container.storage import StorageContainer
from chatserver.dev.servers import Server, dynamodb_launch, redis_launch
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.protocol.frames import Message
from chatserver.service.history.chat_query_pages import TimeRange
from chatserver.service.history.messages_of_all_chats import MessagesOfAllChats
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.http_transport import ITEM_OPERATIONS
from chatserver.warm.messages.active_days import DAY_US
from chatserver.warm.messages.message_repository import PersistItem
from chatserver.warm.schema.provisioning import apply_tables
from tests.benchmarks.output import out_option, write_figures
from tests.integration.warm.support import settings_for
from tests.integration.workers.support import GATEWAY, open_container
from tests.support.servers.processes import free_port, redis_url_of
from workers.persist.active_day_recorder import DayRecorder
from workers.persist.batch_changes import EntryWrite

MESSAGES: Final = 20  # per chat
DAYS: Final = 10  # with messages, per chat
SPAN: Final = 90
LIMIT: Final = 50
READS: Final = frozenset({"get_item", "query", "scan", "batch_get_item"})
units: collections.Counter[str] = collections.Counter()
_call_once = DynamoClient.call_once


async def _counted(client: DynamoClient, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    counts = {"ReturnConsumedCapacity": "INDEXES"} if operation in ITEM_OPERATIONS else {}
    answer = await _call_once(client, operation, {**request, **counts})
    used = answer.get("ConsumedCapacity", [])
    for each in used if isinstance(used, list) else [used]:
        units["read" if operation in READS else "write"] += each["CapacityUnits"]
    units["calls"] += 1
    return answer


def make_messages(user: UserId, other: UserId, rng: random.Random) -> list[Message]:
    """Return messages of a direct chat."""
    today = int(time.time()) // 86_400 - 1
    days = sorted(rng.sample(range(today - SPAN, today), DAYS))
    times = sorted(rng.choice(days) * DAY_US + rng.randrange(DAY_US) for _ in range(MESSAGES))
    chat = direct_chat_id(user, other)
    return [
        Message(
            seq, ts, chat, f"01K{rng.randrange(10**23):023d}", rng.choice([user, other]),
            f"01J{seq:023d}", "text", "x" * 200,
        )
        for seq, ts in enumerate(times, 1)
    ]  # fmt: skip


def works_of(sent: list[Message], other: UserId) -> list[EntryWrite]:
    raw = (CommittedMessage(seq=m.seq, ts=m.ts, receiver=other, tail=b"") for m in sent)
    return [
        EntryWrite(GATEWAY, each, PersistItem(message, other))
        for each, message in zip(raw, sent, strict=True)
    ]


async def write(container: StorageContainer, user: UserId, count: int) -> dict[str, float]:
    """Write the chats as the persist worker does; return the units per message."""
    rng, recorder = random.Random(count), DayRecorder(container.active_days)
    found: collections.Counter[str] = collections.Counter()
    await container.directory.put_user_if_absent(user, None, 1.0)
    for number in range(count):
        other = UserId(f"u{number}")
        await container.directory.put_user_if_absent(other, None, 1.0)
        sent = make_messages(user, other, rng)
        await container.directory.create_direct(sent[0].chat, user, other, 1.0)
        works = works_of(sent, other)
        units.clear()
        for work in works:  # each message is in a separate batch, which is the most expensive case
            await recorder.record([work])
        found["days_write"] += units["write"]
        found["days_read"] += units["read"]
        units.clear()
        await container.messages.put_batch([work.item for work in works], 60)
        found["messages_write"] += units["write"]
    return {name: round(value / count / MESSAGES, 3) for name, value in found.items()}


def lists_of(container: StorageContainer) -> MessagesOfAllChats:
    """Return the use case with an empty cache."""
    return MessagesOfAllChats(
        chats=container.chats,
        days=container.active_days,
        messages=container.message_indexes,
        memberships=container.memberships,
        log=container.chat_log,
        older=container.older_tiers,
        cold=container.cold_log,
        views=container.views,
        clock=container.clock,
    )


async def read(container: StorageContainer, user: UserId) -> dict[str, Any]:
    """Read pages; return their costs."""
    rng, found = random.Random(1), {}
    kinds: dict[str, list[tuple[float, float, float]]] = {"first": [], "next": [], "any time": []}

    async def page(kind: str, lists: MessagesOfAllChats, times: TimeRange, start: Any) -> Any:
        units.clear()
        began = time.perf_counter()
        got = await lists.list_page(user, user, None, times, LIMIT, start)
        took_ms = 1000 * (time.perf_counter() - began)
        kinds[kind].append((took_ms, units["read"], units["calls"]))
        assert len(got.items) == LIMIT or got.next is None
        return got.next

    await container.chats.list_all(user)
    now_ts = int(time.time() * 1e6)
    for _ in range(20):
        lists = lists_of(container)
        start = await page("first", lists, TimeRange(), None)
        for _ in range(5):
            start = None if start is None else await page("next", lists, TimeRange(), start)
        for _ in range(5):
            to_ts = now_ts - rng.randrange(SPAN * DAY_US // 2)
            await page("any time", lists, TimeRange(to_ts=to_ts), None)
    for kind, samples in kinds.items():
        ms = sorted(each[0] for each in samples)
        found[kind] = {
            "pages": len(ms),
            "p50_ms": round(statistics.median(ms), 1),
            "p99_ms": round(ms[min(len(ms) - 1, int(len(ms) * 0.99))], 1),
            "read_units": round(statistics.mean(each[1] for each in samples), 1),
            "calls": round(statistics.mean(each[2] for each in samples), 1),
        }
    return found


async def measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        servers = [
            Server(dynamodb_launch(Path(folder) / "dynamodb", free_port())),
            Server(redis_launch(Path(folder) / "redis", free_port(), appendonly="no")),
        ]
        try:
            for each in servers:
                each.start()
            warm = settings_for(servers[0].endpoint)
            async with open_container(redis_url_of(servers[1]), warm) as container:
                await apply_tables(container.dynamodb, warm, poll_s=0.01)
                user = UserId("me")
                written = await write(container, user, count)
                return {"units_per_message": written, **await read(container, user)}
        finally:
            for each in servers:
                each.stop()


@click.command()
@click.argument("counts", nargs=-1, type=int)
@out_option
def main(counts: tuple[int, ...], out: Path | None) -> None:
    """Measure for each of COUNTS chats (default: 10, 100 and 1,000)."""
    DynamoClient.call_once = _counted  # type: ignore[method-assign]  # meters the whole process
    chats = counts or (10, 100, 1_000)
    found = {f"{count} chats": asyncio.run(measure(count)) for count in chats}
    write_figures(found, out)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
