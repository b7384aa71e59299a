"""Helpers of the analytics tests: chats, the archive, and exported files.

The files are read without product code.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold, Warm
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.features.analytics.settings import Analytics
from chatserver.features.analytics.worker.export_passes import ExportPass, make_lease
from chatserver.features.analytics.worker.exporter import ExportTally
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.messages.messages import PersistItem
from chatserver.warm.schema.provisioning import apply_tables
from tests.integration.features.attachments.support import cold_variables, iter_objects
from tests.integration.warm.support import message
from tests.integration.workers.support import open_container, variables_of
from tests.support.fork_server import CLI, run_process
from tests.support.servers.processes import redis_client
from workers.archive.archiver import Archiver

DAY_US = 86_400_000_000
OLD_TS = 1_600_000_000_000_000  # 2020-09-13
RECENT_TS = 4_000_000_000_000_000  # too recent for the archive
CLI_TIMEOUT_S = 120


@dataclasses.dataclass
class DirectChat:
    id: ChatId
    a: UserId
    b: UserId

    def text(self, seq: int, sender: str = "", **changes: Any) -> Message:
        """Return a message from 2020; each seq is ten minutes after the previous one."""
        fields = {"ts": OLD_TS + seq * 600_000_000, "body": f"text {seq} ⟨é⟩", **changes}
        return message(seq, self.id, sender or (self.a if seq % 2 else self.b), **fields)

    def texts(self, count: int, start: int = 1) -> list[Message]:
        return [self.text(seq) for seq in range(start, start + count)]


@dataclasses.dataclass
class Lake:
    """The container of a worker process, and the bucket of its exports."""

    container: StorageContainer
    redis_url: str
    warm: Warm
    cold: Cold

    async def open_direct(self) -> DirectChat:
        """Create a direct chat of two new users."""
        suffix = secrets.token_hex(4)
        a, b = UserId(f"ann-{suffix}"), UserId(f"ben-{suffix}")
        for user in (a, b):
            await self.container.directory.put_user_if_absent(user, None, 1.0)
        chat = direct_chat_id(a, b)
        await self.container.directory.create_direct(chat, a, b, 1.0)
        return DirectChat(chat, a, b)

    async def put(self, *messages: Message) -> None:
        """Write entries to DynamoDB, as the persist worker does."""
        items = [PersistItem(each, "x") for each in messages]
        for start in range(0, len(items), 20):
            await self.container.messages.put_batch(items[start : start + 20], 20)

    async def archive(self, *chats: DirectChat, **settings: Any) -> None:
        """Archive the old messages of chats."""
        core = self.container
        archiver = Archiver(
            manifests=core.manifests,
            objects=core.segments,
            archivable=core.archivable,
            settings=core.settings.archive.model_copy(update=settings),
            clock=core.clock,
            restored=core.restored,
            users=core.user_positions,
        )
        for chat in chats:
            await archiver.archive_chat(chat.id)

    async def export_chat(self, count: int) -> tuple[DirectChat, list[Message]]:
        """Create a chat whose messages are archived and exported; return it and them."""
        chat = await self.open_direct()
        sent = chat.texts(count)
        await self.put(*sent)
        await self.archive(chat)
        await self.export()
        return chat, sent

    async def change(self, target: Message, entry: Message) -> None:
        """Apply a change entry to an earlier message, as the persist worker does."""
        await self.put(entry)
        await self.container.message_changes.apply(target.chat, target.ts, [entry])

    async def export(self, **options: Any) -> ExportTally:
        lease = make_lease(self.container, secrets.token_hex(4))
        async with lease.release_on_exit():
            return await ExportPass(self.container, lease).run(**{"with_warm": False, **options})

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process that uses these stores."""
        return {
            **os.environ,
            **variables_of(self.container),
            "CHAT_WARM_TENANT": self.warm.tenant,
            **cold_variables(self.cold),
            **more,
        }

    async def run(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [*CLI, "analytics", *args]
        return await asyncio.to_thread(
            run_process, command, self.environment(**more), CLI_TIMEOUT_S
        )

    def delete_lease(self) -> None:
        """Delete the lease of a killed process, so that the test does not wait for its expiry."""
        with redis_client(self.redis_url) as client:
            for key in client.scan_iter("*lease:analytics*"):
                client.delete(key)

    def objects(self) -> dict[str, bytes]:
        return dict(iter_objects(self.cold))

    def files(self) -> dict[str, bytes]:
        return {key: data for key, data in self.objects().items() if key.endswith(".parquet")}

    def rows(self, chat: DirectChat | None = None) -> list[dict[str, Any]]:
        """Return all rows, or those of one chat, by seq; `date` and `tenant` come from the key."""
        rows: list[dict[str, Any]] = []
        for key, data in self.files().items():
            parts = dict(part.split("=") for part in key.split("/") if "=" in part)
            rows += [row | parts for row in pq.read_table(io.BytesIO(data)).to_pylist()]
        chosen = [row for row in rows if chat is None or row["chat"] == chat.id]
        return sorted(chosen, key=lambda row: (row["chat"], row["seq"]))

    def seqs(self, chat: DirectChat) -> list[int]:
        """Return the seqs of a chat in the files, including repeats."""
        return [row["seq"] for row in self.rows(chat)]


@contextlib.asynccontextmanager
async def open_lake(
    redis_url: str, warm: Warm, cold: Cold, *, bodies: bool = False
) -> AsyncIterator[Lake]:
    """Open a lake that archives messages older than a second, with 40 entries in a segment."""
    archive = config.Archive(retention_s=1, segment_entries_min=1, segment_entries_max=40, wait_s=0)
    analytics = Analytics(export="texts" if bodies else "")
    async with (
        open_s3(cold) as store,
        open_dynamodb(warm) as client,
        open_container(
            redis_url, warm, cold=cold, archive=archive, analytics=analytics
        ) as container,
    ):
        await apply_tables(client, warm, poll_s=0.01)
        await apply_bucket(store, cold)
        yield Lake(container, redis_url, warm, cold)


def texts_of(rows: Sequence[dict[str, Any]]) -> list[str | None]:
    return [row["body"] for row in rows]
