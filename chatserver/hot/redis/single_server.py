"""Client of a single Redis server: one connection, reopened when it is lost.

With Sentinels (`chatserver.hot.redis.sentinels`), each new connection goes to the current master.
If the server becomes a replica, the connection is closed within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import redis.asyncio
import structlog

from chatserver import config
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ConfigError
from chatserver.hot.redis.client import RECONNECT_S_MAX, HotClient
from chatserver.hot.redis.connection_setup import (
    handshake_deadline,
    log_in,
    open_connection,
    prepare,
    read_replication,
)
from chatserver.hot.redis.durability import Unconfirmed
from chatserver.hot.redis.pipelined_connection import OnReply, PipelinedConnection, Reply
from chatserver.hot.redis.replies import call_on
from chatserver.hot.redis.scripts import Value
from chatserver.hot.redis.sentinels import find_master, require_master

log = structlog.get_logger()


class SingleClient(HotClient):
    """Client of one server. All calls use one connection, in order."""

    is_ordered = True

    def __init__(self, settings: config.Redis, *, is_read_only: bool = False) -> None:
        super().__init__(settings, is_read_only=is_read_only)
        self._wire: PipelinedConnection | None = None
        self._replicas = 0  # replicas that acknowledge writes

    @property
    def is_up(self) -> bool:
        return self._wire is not None and self._wire.is_open

    def send(self, on_reply: OnReply, *args: Value) -> None:
        """Send a call; see `HotClient.send`."""
        if self._wire is None:
            asyncio.get_running_loop().call_soon(on_reply, self._make_unavailable())
        else:
            self._wire.send(on_reply, *args)

    def _send_and_wait(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        replies: list[Reply] = []

        def on_waited(waited: Reply) -> None:
            reply = self._durable.check_reply(replies[0], waited)
            if isinstance(reply, Unconfirmed):
                self._replicas = 0  # until `_check_epoch` reads it again
            on_reply(reply)

        if self._replicas < self._durable.replicas:
            self.send(
                lambda reply: on_reply(self._durable.check_without_replicas(reply, self._replicas)),
                *args,
            )
            return
        self.send(replies.append, *args)
        self.send(on_waited, *self._wait)

    def create_blocking_client(self, key: str) -> redis.asyncio.Redis:
        """Return a client for blocking reads of any key."""
        return self._create_blocking_client_at(self.address)

    async def connect(self) -> None:
        """Open a connection and read the epochs; see `HotClient.connect`."""
        is_watched = bool(self.settings.sentinels)
        if is_watched:
            self.address = await find_master(self.address, self.settings)
            self.name = self.address.name
        wire = await open_connection(self.address, self.settings)
        async with handshake_deadline(wire, self.settings):
            await log_in(wire, self.address)
            if is_watched:
                await require_master(wire)
            if b"cluster_enabled:1" in await call_on(wire, "INFO", "cluster"):
                raise ConfigError(
                    f"redis.cluster (CHAT_REDIS_CLUSTER): is off, but {self.name} is a node "
                    "of a Redis Cluster; turn it on"
                )
            await prepare(wire, self.settings)
            await self._load_epochs(wire)
        # Set `_wire` last: a call with an earlier epoch must not reach this Redis.
        self._wire = wire

    async def _load_epochs(self, wire: PipelinedConnection) -> None:
        replid, self._replicas = await read_replication(wire)
        self._record_replicas(self.name, self._replicas)
        epochs = await self._check_epochs(wire, range(len(self.epochs)))
        if not self.is_read_only:
            # Partition 0 first: if another process creates the epochs now, with other settings, one
            # of the two processes stops here, before it has written anything.
            first = await self._load_epoch(wire, 0, replid, "")
            others = (self._load_epoch(wire, n, replid, "") for n in range(1, len(epochs)))
            epochs = [first, *await asyncio.gather(*others)]
        is_changed = epochs != self.epochs and self.epochs[0] != ""
        self.epochs = epochs
        if is_changed:
            log.warning("hot.epoch_changed", redis=self.name)
            for callback in self.on_epoch:
                callback()

    async def maintain_connection(self) -> None:
        while True:
            if self._wire is not None:
                await asyncio.shield(self._wire.closed)
                log.warning("hot.connection_lost", redis=self.name)
            wait_s = 0.05
            while True:
                try:
                    await self.connect()
                except ChatError as exc:
                    self._wire = None
                    if not self.blocked:  # `connect` has already logged that Redis is blocked.
                        log.warning("hot.connect_failed", redis=self.name, error=exc.message)
                    await asyncio.sleep(add_jitter(wait_s))
                    wait_s = min(wait_s * 2, RECONNECT_S_MAX)
                else:
                    log.info("hot.connected", redis=self.name, epoch=self.epochs[0])
                    for callback in self.on_reload:
                        callback()
                    break

    async def _check_epoch(self, partition: int) -> None:
        wire = self._wire
        await super()._check_epoch(partition)
        if wire is None or partition != 0:
            return
        if self._durable.replicas:
            with contextlib.suppress(ChatError):  # the next connection reads it
                _, self._replicas = await read_replication(wire)
                self._record_replicas(self.name, self._replicas)
        if not self.settings.sentinels:
            return
        try:
            await require_master(wire)
        except ChatError as exc:
            wire.abort(exc.message)

    def get_keys_by_server(self) -> dict[str, str]:
        return {self.name: self.keys.epoch(0)} if self.is_up else {}

    def reload_epoch(self, partition: int) -> None:
        """Reconnect; this reads all epochs again."""
        if self._wire is not None:
            self._wire.abort(f"redis at {self.name}: its data was lost or replaced")

    async def close(self) -> None:
        await self._end_confirmations()
        if self._wire is not None:
            self._wire.abort("this process is stopping")
