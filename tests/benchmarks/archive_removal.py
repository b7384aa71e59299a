"""Cost of removing archived messages from DynamoDB, by the archive worker and by TTL.

    python -m tests.benchmarks.archive_removal [--out F.json]

Writes messages of 200 bytes, of a direct chat, to the DynamoDB API server. The archiver moves them,
once with each `archive.removal`, and then visits the chat again. Finally the removals are
checked as the Stream reader does. Units are the server's own count.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import click

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.cold.segment_store import SegmentStore
from chatserver.config import Archive, Warm
from chatserver.dev.servers import Server, dynamodb_launch, ministack_launch
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.protocol.frames import Message
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRows
from chatserver.warm.archive.user_archive_positions import UserArchivePositions
from chatserver.warm.dynamo.client import DynamoClient, open_dynamodb
from chatserver.warm.messages.message_repository import MessageRepository, PersistItem
from chatserver.warm.messages.ttl import ItemRetention
from chatserver.warm.schema.provisioning import apply_tables
from tests.benchmarks.output import out_option, write_figures
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import FixedClock, settings_for
from tests.support.servers.processes import free_port
from workers.archive.archiver import Archiver
from workers.archive.ttl_removal_checks import TtlRemovalClassifier

COUNT: Final = 10_000
RETENTION_S: Final = 3600
AGE_S: Final = 7200
IN_FLIGHT: Final = 4
READS: Final = {"get_item", "query", "scan", "batch_get_item"}


class Metered(DynamoClient):
    """A client that requests the consumed capacity of each call."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        super().__init__(client._sdk, settings, client._http)
        self.units: collections.Counter[str] = collections.Counter()
        self.calls = 0

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = await super().call_once(
            operation, {**request, "ReturnConsumedCapacity": "INDEXES"}
        )
        used = answer.get("ConsumedCapacity", [])
        kind = "read" if operation in READS else "write"
        for each in used if isinstance(used, list) else [used]:
            self.units[kind] += each["CapacityUnits"]
        self.calls += 1
        return answer


@contextlib.contextmanager
def metered(client: Metered, into: dict[str, Any], name: str) -> Iterator[None]:
    """Record the units that a block of code uses."""
    client.units.clear()
    client.calls, cpu = 0, time.process_time()
    yield
    into[name] = {
        "write_units": client.units["write"],
        "read_units": client.units["read"],
        "calls": client.calls,
        "cpu_ms": round(1000 * (time.process_time() - cpu)),
    }


def make_messages(chat: ChatId) -> list[Message]:
    """Return messages that are two hours old, with ids of realistic length."""
    start = int(time.time() - AGE_S) * 1_000_000
    return [
        Message(
            seq, start + seq, chat, f"01K{seq:023d}", "alice", f"01J{seq:023d}", "text", "x" * 200
        )
        for seq in range(1, COUNT + 1)
    ]


async def put(client: DynamoClient, warm: Warm, sent: list[Message], settings: Archive) -> None:
    """Write messages in the same batches as the persist worker."""
    clock = FixedClock(sent[0].ts / 1e6)
    repository = MessageRepository(client, warm, clock, retention=ItemRetention.by(settings))
    parts = [sent[n : n + 250] for n in range(0, len(sent), 250)]
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def write(part: list[Message]) -> None:
        async with slots:
            await repository.put_batch([PersistItem(each, "bob") for each in part], 60)

    await asyncio.gather(*map(write, parts))


async def measure(removal: str, endpoint: str, s3: str) -> dict[str, Any]:
    """Return the cost of one removal method."""
    warm, cold = settings_for(endpoint), cold_settings(s3)
    settings = Archive(removal=removal, retention_s=RETENTION_S, wait_s=0)  # type: ignore[arg-type]  # "worker" or "ttl"
    chat = direct_chat_id(UserId("alice"), UserId("bob"))
    found: dict[str, Any] = {}
    async with open_dynamodb(warm) as plain, open_s3(cold) as store:
        await apply_tables(plain, warm, poll_s=0.01)
        await apply_bucket(store, cold)
        client, clock = Metered(plain, warm), SystemClock()
        objects = SegmentStore(store, settings)
        manifests, archivable = Manifests(client, warm), ArchivableEntries(client, warm, clock)
        rows, users = RestoredRows(client, warm), UserArchivePositions(client, warm)
        archiver = Archiver(
            manifests=manifests,
            objects=objects,
            archivable=archivable,
            settings=settings,
            clock=clock,
            restored=rows,
            users=users,
        )
        sent = make_messages(chat)
        with metered(client, found, "written"):
            await put(client, warm, sent, settings)
        with metered(client, found, "moved"):
            assert (await archiver.archive_chat(chat)).moved == COUNT
        with metered(client, found, "looked at again"):
            assert (await archiver.archive_chat(chat)).moved == 0
        classifier = TtlRemovalClassifier(manifests, objects, clock)
        with metered(client, found, "removals judged"):
            assert {await classifier.classify(each) for each in sent} == {"archived"}
    return found


@contextlib.asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Start the DynamoDB and S3 servers; yield their endpoints."""
    started = [
        Server(dynamodb_launch(folder / "dynamodb", free_port())),
        Server(ministack_launch(folder / "s3", free_port(), service="s3")),
    ]
    try:
        for each in started:
            each.start()
        yield started[0].endpoint, started[1].endpoint
    finally:
        for each in started:
            each.stop()


async def run() -> dict[str, Any]:
    """Measure both removal methods."""
    with tempfile.TemporaryDirectory() as folder:
        async with servers(Path(folder)) as (endpoint, s3):
            ways = {way: await measure(way, endpoint, s3) for way in ("worker", "ttl")}
    return {"benchmark": "messages taken out of DynamoDB", "messages": COUNT, "ways": ways}


@click.command()
@out_option
def main(out: Path | None) -> None:
    """Measure both removal methods."""
    figures = asyncio.run(run())
    write_figures(figures, out)
    for way, steps in figures["ways"].items():
        for step, used in steps.items():
            each = {name: round(value / COUNT, 4) for name, value in used.items()}
            sys.stdout.write(f"{way:7} {step:16} {each} a message\n")


if __name__ == "__main__":
    main()
