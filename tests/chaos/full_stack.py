"""A stack with all three tiers, archive and pushes, and faults for links, clocks and servers.

Redis has AOF `everysec`. Every process reaches Redis, DynamoDB and S3 through a proxy; gateways and
workers have separate links to Redis, and each group of processes has its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # no type information
import msgspec
import zstandard
from botocore.config import Config

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY, Server, ministack_launch
from chatserver.domain.clock import SystemClock
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.chaos.conftest import SETTINGS
from tests.support.clocks import SkewedClock, find_faketime
from tests.support.links import Links
from tests.support.servers.processes import free_port
from tests.support.servers.push_service import Browser, PushService, open_push_service
from tests.support.stack import Fleet, Stack, start_async

LINKS = ("gateways-redis", "workers-redis", "dynamodb", "s3")
CLOCKS = ("gateways", "persist", "others")
GATEWAYS = 3
PASSIVE_USERS_MAX = (
    255  # users without a device: the maximum number of initial members besides the owner
)
SMALL = {  # small limits so that logs and inboxes overflow and chats change size
    "CHAT_REDIS_PARTITIONS": "4",
    "CHAT_REDIS_LOG_MAX": "80",
    "CHAT_REDIS_INBOX_MAX": "80",
    "CHAT_CHATS_FANOUT_MEMBERS_MAX": "8",
    "CHAT_ARCHIVE_RETENTION_S": "3",
    "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.5",
    "workers.archive.LEASE_S": "2",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN": "1",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MAX": "50",
    "CHAT_ARCHIVE_WAIT_S": "0",
    "workers.delivery_repair.REPAIR_AFTER_MS": "500",
    "workers.delivery_repair.INTERVAL_MS": "200",
    "CHAT_OUTBOUND_ALLOW_PRIVATE": json.dumps(["127.0.0.0/8"]),
    # A busy machine must not cause refusals: each one costs seconds of retries.
    "CHAT_REDIS_CALL_TIMEOUT_S": "2",
    "CHAT_GATEWAY_PING_INTERVAL_S": "7",
    "CHAT_GATEWAY_PONG_TIMEOUT_S": "6",
    "CHAT_GATEWAY_RPC_TIMEOUT_S": "8",  # one call creates the large group
}


class FullStack:
    """The processes and their links. `open_full_stack` starts one."""

    def __init__(self, folder: Path, links: Links, pushes: PushService) -> None:
        self.folder = folder
        self.pushes = pushes
        self._env: dict[str, str] = {**SETTINGS, **SMALL}
        self.stack = Stack(folder, "everysec", self._env)
        self.s3 = Server(ministack_launch(folder / "s3", free_port(), service="s3"))
        targets = (self.stack.redis, self.stack.redis, self.stack.dynamodb, self.s3)
        self.links = {
            name: links.open(server.port) for name, server in zip(LINKS, targets, strict=True)
        }
        self.cold = Cold.model_validate(
            {
                "endpoint": self.s3.endpoint,
                "bucket": "chaos",
                "access_key": ACCESS_KEY,
                "secret_key": SECRET_KEY,
                "call_timeout_s": 30,
            }
        )
        library = find_faketime()
        self.has_clocks = library is not None
        self.clocks = {name: SkewedClock(folder / f"{name}.clock", library) for name in CLOCKS}
        self._env |= {
            "CHAT_REDIS_URL": self._redis_url("gateways-redis"),
            "CHAT_WARM_ENDPOINT": f"http://127.0.0.1:{self.links['dynamodb'].port}",
            "CHAT_COLD_ENDPOINT": f"http://127.0.0.1:{self.links['s3'].port}",
            "CHAT_COLD_BUCKET": self.cold.bucket,
            "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
            "CHAT_COLD_SECRET_KEY": SECRET_KEY,
        }
        self.passive_users = [f"passive{number}" for number in range(PASSIVE_USERS_MAX)]
        self.restarting: set[str] = set()  # processes that a fault stopped and will restart
        self.fleet: Fleet

    def _redis_url(self, link: str) -> str:
        return f"redis://127.0.0.1:{self.links[link].port}/0"

    async def start(self) -> None:
        """Start all servers and processes."""
        self.s3.start()
        await self.apply_bucket()
        self.stack.start_servers()
        await self.stack.add_users(self.passive_users)
        notify = {
            f"CHAT_NOTIFY_{name}".upper(): str(value)
            for name, value in self.pushes.settings().items()
        }
        for name in ("persist-one", "persist-two"):
            self._add_worker(name, "persist", clock="persist")
        self._add_worker("repair-rpc", "repair", "rpc", clock="others")
        self._add_worker("archive", "archive", clock="others")
        self._add_worker("notify", "notify", clock="others", **notify)
        variables = self.clocks["gateways"].variables()
        self.fleet = self.stack.add_fleet(GATEWAYS, CHAT_GATEWAY_DRAIN_S="2", **variables)
        await asyncio.gather(*map(start_async, (self.fleet, *self.stack.workers.values())))

    async def apply_bucket(self) -> None:
        """Create the bucket if it does not exist."""
        async with open_s3(self.cold) as store:
            await apply_bucket(store, self.cold)

    def _add_worker(self, name: str, *kinds: str, clock: str, **more: str) -> None:
        variables = self.clocks[clock].variables()
        redis = {
            "CHAT_REDIS_URL": self._redis_url("workers-redis"),
            "CHAT_REDIS_CALL_TIMEOUT_S": "4",  # longer than for gateways, which have a deadline
        }
        server = self.stack.add_worker(*kinds, **redis, **variables, **more)
        del self.stack.workers["-".join(kinds)]
        self.stack.workers[name] = server

    async def restart_exited(self) -> None:
        """Restart processes that have exited, like a supervisor. Runs until cancelled.

        A worker that loses Redis exits. A process killed by a fault stays down until the fault
        restarts it.
        """
        while True:
            for server in (*self.stack.workers.values(), self.fleet):
                if server.launch.name in self.restarting:
                    continue
                if server.process is not None and server.process.poll() is not None:
                    server.process = None
                    with contextlib.suppress(AssertionError):  # the next iteration retries
                        await start_async(server)
            await asyncio.sleep(0.2)

    def end_faults(self) -> None:
        """End all faults of links and clocks."""
        for link in self.links.values():
            link.end_faults()
        for clock in self.clocks.values():
            clock.set(0.0)

    def stop(self) -> None:
        """Kill all processes."""
        self.stack.stop()
        self.s3.kill()

    # pushes

    async def subscribe(self, user: str) -> Browser:
        """Register a browser of a user."""
        browser = self.pushes.new_browser()
        async with open_dynamodb(self.stack.warm) as client:
            subscriptions = PushSubscriptions(client, 10)
            await subscriptions.put(browser.subscription_of(user), SystemClock().time())
        return browser

    # reference data

    async def read_archive(self, chat: str) -> list[dict[str, Any]]:
        """Return the entries of a chat in S3, each from its newest segment."""
        return await asyncio.to_thread(lambda: list(self._iter_archive(chat)))

    def _iter_archive(self, chat: str) -> Iterator[dict[str, Any]]:
        client = boto3.client(
            "s3",
            endpoint_url=self.s3.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"max_attempts": 2}, connect_timeout=20, read_timeout=20),
        )
        newest: dict[int, dict[str, Any]] = {}
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=self.cold.bucket, Prefix=f"archive/v1/{chat}/"
        )
        for page in pages:
            for each in page.get("Contents", ()):
                try:
                    answer = client.get_object(Bucket=self.cold.bucket, Key=each["Key"])
                except client.exceptions.NoSuchKey:
                    continue  # a newer segment has replaced this one
                lines = zstandard.ZstdDecompressor().decompress(answer["Body"].read()).splitlines()
                for line in lines[1:]:
                    entry = msgspec.json.decode(line)
                    known = newest.get(entry["seq"])
                    if known is None or known.get("rev", 0) <= entry.get("rev", 0):
                        newest[entry["seq"]] = entry
        yield from newest.values()


@contextlib.asynccontextmanager
async def open_full_stack(folder: Path) -> AsyncIterator[FullStack]:
    """Start a full stack and stop it at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with Links() as links:
        async with open_push_service() as pushes:
            full = FullStack(folder, links, pushes)
            try:
                await full.start()
                yield full
            finally:
                full.stop()


def cut_log(folder: Path, size: int) -> bool:
    """Truncate Redis's append-only file by `size` bytes; return False if it is too short."""
    files = [*folder.rglob("*.incr.aof"), *folder.glob("*.aof")]
    path = max(files, key=lambda found: found.stat().st_mtime_ns)
    left = path.stat().st_size - size
    if left < 0:
        return False
    with path.open("r+b") as file:
        file.truncate(left)
    return True


def clear_folder(folder: Path) -> None:
    """Remove a stack's folder."""
    shutil.rmtree(folder, ignore_errors=True)
