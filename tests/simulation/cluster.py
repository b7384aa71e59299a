"""The simulated servers and processes: Redis, DynamoDB, gateways and workers.

Every process runs the product's own startup code with its own settings, containers and connections.
`kill` stops it between two callbacks; a supervisor starts it again, as Kubernetes would.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final

from chatserver.auth.access_tokens import Tokens
from chatserver.config import Settings
from chatserver.container import storage
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError
from chatserver.features.push.worker import push_worker
from chatserver.gateway.process.draining import StopRequest
from chatserver.gateway.process.wiring import open_gateway
from chatserver.hot.chats.persist_backlog import PRESSURE_LOG_MAX
from chatserver.warm.chats.directory import Directory
from chatserver.warm.schema.active_version import make_schema_item
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import TABLES
from tests.simulation.api import Application
from tests.simulation.dynamodb.client import (
    DynamoDb,
    make_client,
    open_simulated,
    open_simulated_streams,
)
from tests.simulation.dynamodb.streams import Streams
from tests.simulation.environment import get_wall_time
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.object_store import Objects, open_simulated_s3
from tests.simulation.process import Process
from tests.simulation.pushes import PushService, open_simulated_providers
from tests.simulation.redis.server import RedisServer
from tests.simulation.sockets import ListeningSocket
from workers.archive import ttl_stream_reader
from workers.readiness import Readiness
from workers.runner import serve_workers

GATEWAY_PORT: Final = 8081
REDIS_PORT: Final = 6379
TTL_PASS_S: Final = 0.3
RESTART_S: Final = (0.05, 1.5)  # time until a process that ended runs again
_UNLIMITED: Final = "1000000/s burst 1000000"


def make_settings(**sections: dict[str, Any]) -> Settings:
    """Return the settings of all processes, with short leases and intervals."""
    defaults: dict[str, dict[str, Any]] = {
        "redis": {
            "url": f"redis://10.0.0.1:{REDIS_PORT}/0",
            "call_timeout_s": 1,
            "partitions": 2,
            "log_max": 80,
            "inbox_max": 80,
        },
        "warm": {"endpoint": "http://dynamodb.simulated", "access_key": "a", "secret_key": "s"},
        "auth": {"secret": "5" * 64, "lifetime_s_max": 86_400},
        "gateway": {
            "port": GATEWAY_PORT,
            "drain_s": 2,
            "online_ttl_s": 3,
            "ping_interval_s": 4,
            "pong_timeout_s": 2,
            "rpc_timeout_s": 5,
        },
        "persist": {"lease_s": 2, "write_timeout_s": 1},
        "chats": {"invitations": "never", "fanout_members_max": 8},
        "limits": {
            **dict.fromkeys(("sends", "requests", "connections", "failures", "calls"), _UNLIMITED),
            "memory": "1000000000/s burst 1000000000",
        },
    }
    merged = {
        name: {**defaults.get(name, {}), **sections.get(name, {})}
        for name in [*defaults, *(name for name in sections if name not in defaults)]
    }
    return Settings.model_validate(merged)


class Member:
    """A process of the cluster that is started again when it ends."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        kind: str,
        main: Callable[[Member], Coroutine[Any, Any, None]],
    ) -> None:
        self._cluster = cluster
        self._main = main
        self.name = name
        self.kind = kind
        self.starts = 0
        self.process = Process(name, kind)
        self.stop: Any = None
        self.is_ready = False

    def start(self) -> None:
        """Start a new process."""
        self.is_ready = False
        self.process = Process(f"{self.name}.{self.starts}", self.kind)
        self.process.monotonic_s = self._cluster.loop.rng.uniform(0.0, 10_000.0)
        self.starts += 1
        self.process.run(self._run)

    def _run(self) -> None:
        self.stop = StopRequest()
        task = self._cluster.loop.create_task(self._main(self), name=self.name)
        self.process.remains.append(task)
        task.add_done_callback(self._handle_end)

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        """Start the process again; like all tasks, this one ran in the process itself."""
        cluster = self._cluster
        if not task.cancelled() and (error := task.exception()) is not None:
            cluster.loop.trace.add(f"{self.process.name} ended: {error!r}")
            if not isinstance(error, ChatError):
                cluster.loop.failures.append((self.process, repr(error)))
        self.is_ready = False
        cluster.loop.kill(self.process)
        cluster.start_later(self)

    def kill(self) -> None:
        """Stop the process between two callbacks; it starts again later."""
        if not self.process.is_dead:
            self._cluster.loop.kill(self.process)
            self.is_ready = False
            self._cluster.start_later(self)

    def kill_after(self, callbacks: int) -> None:
        """Kill the process within a tick, after some more callbacks."""
        self.process.handles_left = callbacks
        self.process.on_death.append(lambda: self._restart_killed(self.process))

    def _restart_killed(self, process: Process) -> None:
        if process is self.process:
            self.is_ready = False
            self._cluster.start_later(self)

    def end(self) -> None:
        """Stop the process gracefully, as SIGTERM does."""
        if not self.process.is_dead:
            self.process.run(self.stop.set)


class Cluster:
    """All servers and processes of one run."""

    def __init__(
        self, loop: SimulatedLoop, settings: Settings, *, is_always_synced: bool = False
    ) -> None:
        self.loop = loop
        self.settings = settings
        self.network = Network(loop)
        self.redis = RedisServer(
            loop, REDIS_PORT, lambda: get_wall_time(loop), is_always_synced=is_always_synced
        )
        self.dynamodb = DynamoDb(loop)
        self.members: dict[str, Member] = {}
        self.has_been_full = False  # Redis was at `maxmemory`
        self.application = Application(self)
        self._context = contextvars.copy_context()
        self._tokens = Tokens(settings.auth, SystemClock())
        self._directory = Directory(make_client(self.dynamodb, settings.warm))
        self.objects = Objects(loop)
        vars(ttl_stream_reader)["open_dynamodb_streams"] = functools.partial(
            open_simulated_streams, self.dynamodb
        )
        self.streams: Streams | None = None
        if settings.warm.stream:
            wall = functools.partial(get_wall_time, loop)
            self.streams = Streams(self.dynamodb.server, wall, loop.rng, self._is_archived)
        self.pushes = PushService(loop)
        vars(push_worker)["open_providers"] = functools.partial(
            open_simulated_providers, self.pushes
        )
        vars(storage)["open_s3"] = functools.partial(open_simulated_s3, self.objects)
        vars(storage)["open_dynamodb"] = functools.partial(open_simulated, self.dynamodb)

    # start

    def start_servers(self) -> None:
        """Start Redis and create the tables."""
        self.redis.start()
        for table in TABLES:
            request = make_create_request(table, self.settings.warm)
            self.dynamodb.server.handle("CreateTable", request)
            if table.expiry is not None:
                specification = {"AttributeName": table.expiry, "Enabled": True}
                self.dynamodb.server.handle(
                    "UpdateTimeToLive",
                    {
                        "TableName": request["TableName"],
                        "TimeToLiveSpecification": specification,
                    },
                )
        if self.streams is not None:
            self._remove_expired()
        prefix = self.settings.warm.table_prefix
        item = {"TableName": f"{prefix}directory", "Item": make_schema_item()}
        assert self.dynamodb.server.handle("PutItem", item)[0] == 200

    def _remove_expired(self) -> None:
        """Remove expired items, now and then, outside of any process."""
        assert self.streams is not None
        self.streams.remove_expired()
        self.loop.call_later(TTL_PASS_S, self._remove_expired, context=self._context)

    def add_gateway(self, name: str) -> Member:
        return self._add(Member(self, name, "gateway", self._run_gateway))

    def add_api(self, name: str) -> Member:
        return self._add(Member(self, name, "api", self.application.run))

    @property
    def log_min(self) -> int:
        """Return how many persisted entries the log of a chat keeps at least."""
        log_max = self.settings.redis.log_max
        return min(log_max, PRESSURE_LOG_MAX) if self.has_been_full else log_max

    @property
    def has_api(self) -> bool:
        return bool(self.of_kind("api"))

    def add_worker(self, name: str, *workers: str) -> Member:
        async def run(member: Member) -> None:
            readiness = Readiness()
            member.is_ready = True
            await serve_workers(self.settings, list(workers), readiness, member.stop)

        return self._add(Member(self, name, "worker", run))

    def _add(self, member: Member) -> Member:
        self.members[member.name] = member
        member.start()
        return member

    async def _run_gateway(self, member: Member) -> None:
        sock: Any = ListeningSocket(self.network, GATEWAY_PORT)

        def report() -> None:
            member.is_ready = True

        with sock:
            async with open_gateway(self.settings) as server:
                await server.run(sock, member.stop, report)

    def start_later(self, member: Member) -> None:
        """Start a member after a random time, outside of any process."""
        delay_s = self.loop.rng.uniform(*RESTART_S)
        self.loop.call_later(delay_s, self._start_if_dead, member, context=self._context)

    def _start_if_dead(self, member: Member) -> None:
        if member.process.is_dead:
            member.start()

    def of_kind(self, kind: str) -> list[Member]:
        return [member for member in self.members.values() if member.kind == kind]

    def end_faults(self) -> None:
        """End all faults that last."""
        self.network.repair_all()
        self.dynamodb.repair()
        self.objects.repair()
        self.pushes.repair()
        self.redis.scripting.is_full = False
        for member in self.members.values():
            member.process.skew_s = 0.0
            if member.process.is_paused:
                self.loop.pause(member.process, is_paused=False)

    # using

    def token(self, user: str, lifetime_s: int = 86_400) -> str:
        """Return a token of a user."""
        return self._tokens.issue(UserId(user), lifetime_s)

    async def add_users(self, users: list[str]) -> None:
        """Create accounts."""
        for user in users:
            await self._directory.put_user_if_absent(user, user, SystemClock().time())

    def is_idle(self) -> bool:
        """Return whether nothing in Redis waits to be delivered or persisted."""
        return not any(
            len(value)
            for key, value in self.redis.keyspace.values.items()
            if key.endswith((b":backlog", b":undelivered"))
        )

    def read_partition(self, table: str, key: str) -> list[dict[str, Any]]:
        """Return the items of a partition, without the product's code."""
        found = self.dynamodb.server.tables[self.settings.warm.table_prefix + table]
        items = found.items.iter_partition(key.encode(), is_forward=True)
        return [item for _, item in items]

    def read_items(self, chat: str) -> list[dict[str, Any]]:
        """Return the items of a chat in all its shards, in order."""
        shards = (f"{chat}#{number}" for number in range(self.settings.warm.shards_max))
        items = [item for name in (chat, *shards) for item in self.read_partition("messages", name)]
        # Tombstones of messages that Redis lost before they were stored.
        stored = {item["seq"]["N"] for item in items}
        for marker in self.read_partition("messages", f"{chat}#gone"):
            if marker["seq"]["N"] not in stored:
                fields = {"sender_id": marker["author"], "deleted": {"BOOL": True}}
                items.append({**marker, **fields})
        return sorted(items, key=lambda item: int(item["ts"]["N"]))

    def find_unstored(self, chat: str, upto: int) -> list[int]:
        """Return the seqs of a chat up to `upto` that are neither in DynamoDB nor in S3."""
        seqs = {int(item["seq"]["N"]) for item in self.read_items(chat)}
        missing = [seq for seq in range(1, upto + 1) if seq not in seqs]
        if missing:
            archived = {entry["seq"] for entry in self.objects.read_archive(chat)}
            missing = [seq for seq in missing if seq not in archived]
        return missing

    def _is_archived(self, item: dict[str, Any]) -> bool:
        """Return whether the archive of a message's chat has reached its position."""
        chat = item["chatid"]["S"].partition("#")[0]
        rows = self.read_partition("directory", f"a#{chat}")
        top = next((row for row in rows if row["SK"]["S"] == f"a#{chat}"), None)
        return top is not None and int(top["last"]["N"]) >= int(item["seq"]["N"])

    def has_lost_expired(self) -> bool:
        """Return whether an item that TTL removed is neither in its table nor in the archive."""
        removed = () if self.streams is None else self.streams.removed
        chats = dict.fromkeys(item["chatid"]["S"].partition("#")[0] for item in removed)
        archived = {
            chat: {entry["seq"] for entry in self.objects.read_archive(chat)} for chat in chats
        }
        return any(
            int(item["seq"]["N"]) not in archived[item["chatid"]["S"].partition("#")[0]]
            and not self._has_item("messages", item)
            for item in removed
        )

    def _has_item(self, table: str, item: dict[str, Any]) -> bool:
        found = self.dynamodb.server.tables[self.settings.warm.table_prefix + table]
        return found.find(item) is not None

    def read_marks(self, chat: str) -> dict[str, tuple[int, int]]:
        """Return the stored (read, received) of each member of a chat."""
        return {
            item["SK"]["S"].removeprefix("m#"): (int(item["read"]["N"]), int(item["received"]["N"]))
            for item in self.read_partition("directory", f"c#{chat}")
            if item["SK"]["S"].startswith("m#")
        }
