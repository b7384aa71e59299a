"""Client interface of the hot tier, for a single Redis server or a Redis Cluster.

`chatserver.hot.redis.single_server` has one connection to a server, `chatserver.hot.redis.cluster`
one connection to each master of a cluster. Both read the epochs (`chatserver.hot.redis.epochs`)
before they allow calls.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import redis.asyncio
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chatserver import config
from chatserver.domain.aligned_sleep import sleep_aligned
from chatserver.domain.ids import ChatId, Epoch
from chatserver.errors import REDIS_DOWN, ChatError, ConfigError, CorruptData, Unavailable
from chatserver.hot.redis import epochs
from chatserver.hot.redis.connection_setup import RedisAddress
from chatserver.hot.redis.durability import Durability, Unconfirmed
from chatserver.hot.redis.keys import Keys, parse_entry_id, parse_partition
from chatserver.hot.redis.pipelined_connection import (
    OnReply,
    PipelinedConnection,
    Reply,
    find_first_key,
)
from chatserver.hot.redis.replies import NoScript, set_future
from chatserver.hot.redis.scripts import Script, Value, load_script
from chatserver.hot.redis.server_health import ServerHealth

log = structlog.get_logger()

RECONNECT_S_MAX = 1.0
BLOCK_MS = 4000  # longest blocking read; shorter than the deadline of `with_deadline`
EPOCH_CHECK_S = 1.0
PERSISTED_POLL_S, PERSISTED_POLL_S_MAX = 0.01, 0.1  # the pause doubles with each poll
EPOCHS_CHECKED_MAX = 64  # maximum partitions whose epoch is checked per `EPOCH_CHECK_S`


class HotClient(abc.ABC):
    """A process's connection to the hot tier. Created by `open_hot`."""

    # True if all calls reach Redis in call order; False if only calls to the same partition do.
    is_ordered: bool

    def __init__(self, settings: config.Redis, *, is_read_only: bool = False) -> None:
        """Create a client. With `is_read_only`, `connect` creates no epochs; they may be empty."""
        self.settings = settings
        self.is_read_only = is_read_only
        self.keys = Keys(settings.partitions)
        self.epochs: list[Epoch] = [Epoch("")] * settings.partitions
        self._whole, self._joined_epochs = Epoch(""), list[Epoch]()
        self.on_epoch: list[Callable[[], None]] = []
        self.blocked = ""  # why an operator blocked this Redis (`chatserver tenants block`)
        self.on_blocked: list[Callable[[str], None]] = []
        self.on_reload: list[Callable[[], None]] = []
        self.address = RedisAddress(settings.url)
        self.name = self.address.name
        self.health = ServerHealth(self.get_keys_by_server, self.send, self.run)
        self._durable = Durability(settings.wait_replicas, settings.wait_fsync)
        # A WAIT delays later calls on its connection, so its timeout is well below that of a call.
        self._wait = self._durable.build_command(self.wait_ms)
        self._confirmations: set[asyncio.Task[None]] = set()
        self._without_replicas: set[str] = set()  # servers with fewer than `wait_replicas`

    # calls

    @property
    @abc.abstractmethod
    def is_up(self) -> bool:
        """True while Redis responds and the epoch is known.

        In a cluster, one partition is enough.
        """

    @abc.abstractmethod
    def send(self, on_reply: OnReply, *args: Value) -> None:
        """Send a call without waiting; `on_reply` receives the reply or the error.

        Guarantees:
            Order: calls on keys of the same partition run in call order; see `is_ordered`.
            Reply: `on_reply` runs exactly once, later. If it gets `Unavailable`, the call may have
                run.
        """

    def commit(self, on_reply: OnReply, *args: Value) -> None:
        """Send a call that must be durable before its reply; see `send`.

        Guarantees:
            Durability: before the reply, `redis.wait_replicas` replicas have the write, and with
                `redis.wait_fsync` it is on disk; or DynamoDB has the entries that it added to the
                backlog. Otherwise, `on_reply` gets `Unavailable`; the call may have run.
        """
        if not self._durable.is_on:
            self.send(on_reply, *args)
            return
        key = find_first_key(args)
        assert key is not None, "a commit script has keys"
        partition = parse_partition(key)
        epoch = self.epochs[partition]

        def on_waited(reply: Reply) -> None:
            if not isinstance(reply, Unconfirmed):
                on_reply(reply)
                return
            confirmation = self._confirm(reply, partition, epoch)
            task = asyncio.create_task(confirmation, name=f"confirm-{partition}")
            self._confirmations.add(task)
            task.add_done_callback(self._confirmations.discard)
            # A task that is cancelled before it starts runs no code of its own.
            task.add_done_callback(
                lambda task: on_reply(reply if task.cancelled() else task.result())
            )

        self._send_and_wait(on_waited, args)

    async def _confirm(self, unconfirmed: Unconfirmed, partition: int, epoch: Epoch) -> Reply:
        """Return the reply of a write once DynamoDB has it, or else the error."""
        try:
            async with asyncio.timeout(self.settings.call_timeout_s):
                await self._wait_persisted(partition, epoch)
        except (ChatError, TimeoutError) as exc:
            log.warning("hot.write_unconfirmed", partition=partition, error=str(exc))
            return unconfirmed
        return unconfirmed.reply

    async def _wait_persisted(self, partition: int, epoch: Epoch) -> None:
        """Wait until DynamoDB has everything that is in the partition's backlog now.

        `epoch`: the epoch in which the caller wrote to the backlog.

        Raises:
            Unavailable: Redis does not respond, or is in another epoch and may have lost the write.
        """
        script, upto, pause_s = load_script("read_persisted"), (0, 0), PERSISTED_POLL_S
        inputs = self.keys.of(partition, *script.keys)
        while True:
            current, persisted, newest = await self.run(script, inputs)
            if current != epoch.encode():
                raise Unavailable("redis: lost its data while a write was being confirmed")
            upto = upto if upto > (0, 0) else parse_entry_id(newest.decode())
            if parse_entry_id(persisted.decode()) >= upto:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PERSISTED_POLL_S_MAX)

    async def _end_confirmations(self) -> None:
        """Fail the writes that wait for DynamoDB."""
        for task in self._confirmations:
            task.cancel()
        await asyncio.gather(*self._confirmations, return_exceptions=True)

    @abc.abstractmethod
    def _send_and_wait(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        """Send a call followed by WAIT or WAITAOF, and evaluate both replies.

        If too few replicas are connected, send no WAIT; `on_reply` gets `Unconfirmed`.
        """

    def _record_replicas(self, server: str, replicas: int) -> None:
        """Log when a server gets too few replicas, or enough again."""
        is_missing = replicas < self._durable.replicas
        was_missing = server in self._without_replicas
        if is_missing and not was_missing:
            self._without_replicas.add(server)
            log.warning("hot.replicas_missing", redis=server, have=replicas,
                        need=self._durable.replicas)  # fmt: skip
        elif was_missing and not is_missing:
            self._without_replicas.discard(server)
            log.info("hot.replicas_restored", redis=server, have=replicas)

    async def call(self, *args: Value) -> Any:
        """Send a call and return its reply.

        Guarantees:
            Order: see `send`.
            Cancellation: the call may still run; its reply is dropped.

        Raises:
            Unavailable: no reply in time (the call may have run), or Redis refused it temporarily.
        """
        return await self._wait_for_reply(self.send, args)

    async def _wait_for_reply(self, make: Callable[..., None], args: Sequence[Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        make(set_future(future), *args)
        return await future

    async def run(
        self,
        script: Script,
        keys: Mapping[str, Value] | None = None,
        args: Mapping[str, Value] | None = None,
        items: Iterable[Mapping[str, Value]] = (),
        *,
        is_commit: bool = False,
    ) -> Any:
        """Run a script with inputs by name; load the script if Redis does not have it.

        If `is_commit`, the writes must be durable before the reply; see `commit`.
        """
        key_list, arg_list = script.bind(keys, args, items)
        tail = (len(key_list), *key_list, *arg_list)
        make = self.commit if is_commit else self.send
        try:
            return await self._wait_for_reply(make, ("EVALSHA", script.sha, *tail))
        except NoScript:
            return await self._wait_for_reply(make, ("EVAL", script.source, *tail))

    async def transaction(self, *calls: tuple[Value, ...]) -> list[Any]:
        """Run calls on keys of one partition atomically, and return their replies.

        The calls also run when Redis is out of memory, so use this only for bounded data or to free
        memory. A call without a key, such as TIME, runs on the same server.

        Raises:
            Unavailable: see `call`.
        """
        replies: list[Any] = await self._wait_for_reply(
            functools.partial(self._send_script, load_script("transaction")), calls
        )
        return replies

    async def snapshot(self, *calls: tuple[Value, ...]) -> list[Any]:
        """Run read-only calls on keys of one partition atomically; see `transaction`."""
        replies: list[Any] = await self._wait_for_reply(
            functools.partial(self._send_script, load_script("read_only_transaction")), calls
        )
        return replies

    async def get_time_ms(self, key: str) -> int:
        """Return the time (Unix ms) of the Redis server that has `key`."""
        _, (seconds, micros) = await self.snapshot(("EXISTS", key), ("TIME",))
        return int(seconds) * 1000 + int(micros) // 1000

    async def write(self, *args: Value) -> Any:
        """Send a write that also runs when Redis is out of memory; return its reply."""
        return await self._wait_for_reply(self.send_write, args)

    async def create_group(self, key: str, group: str) -> None:
        """Create a consumer group that reads the stream from its beginning, unless it exists."""
        try:
            await self.write("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
        except CorruptData as exc:
            if "BUSYGROUP" not in exc.message:
                raise

    def send_write(self, on_reply: OnReply, *args: Value) -> None:
        """Send a write that also runs when Redis is out of memory; see `send`."""

        def unwrap(reply: Reply) -> None:
            on_reply(reply if isinstance(reply, Exception) else reply[0])

        self._send_script(load_script("transaction"), unwrap, args)

    def _send_script(self, script: Script, on_reply: OnReply, *calls: tuple[Value, ...]) -> None:
        keys = [key for call in calls if (key := find_first_key(call)) is not None]
        words = [word for call in calls for word in (len(call), *call)]
        tail = (len(keys), *keys, *words)

        def retry_unknown_script(reply: Reply) -> None:
            if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
                self.send(on_reply, "EVAL", script.source, *tail)
            else:
                on_reply(reply)

        self.send(retry_unknown_script, "EVALSHA", script.sha, *tail)

    def get_epoch(self, partition: int) -> Epoch:
        return self.epochs[partition]

    def is_loaded(self, chat: ChatId, gate: bytes | None) -> bool:
        """Return whether field `gate` of a chat shows that it was loaded in the current epoch."""
        epoch = self.get_epoch(self.keys.get_partition(chat))
        return gate is not None and gate.startswith(f"{epoch}:".encode())

    @property
    def whole_epoch(self) -> Epoch:
        """The epoch sent to devices. It changes when any partition's epoch changes.

        A chat's partition can lose data while the members' inboxes, in other partitions, lose none.
        The devices must detect this, to resend messages that were not stored (guarantee P1).
        """
        if self._joined_epochs != self.epochs:
            self._joined_epochs = list(self.epochs)
            self._whole = epochs.join_epochs(self._joined_epochs)
        return self._whole

    def get_device_epoch(self, epoch: Epoch) -> Epoch:
        """Return the epoch to send to devices for `epoch`.

        This is `whole_epoch` if a partition has `epoch`, otherwise `epoch` itself.
        """
        return self.whole_epoch if epoch in self.epochs else epoch

    @abc.abstractmethod
    def create_blocking_client(self, key: str) -> redis.asyncio.Redis:
        """Return a redis-py client for blocking reads of `key`. The caller closes it.

        After a failure, get a new client: the key may have moved.

        Raises:
            Unavailable: no node serves the key now.
        """

    async def with_deadline(self, call: Awaitable[Any]) -> Any:
        """Await a call on a client from `create_blocking_client`.

        Raises:
            TimeoutError: the call took longer than `call_timeout_s` + 5 s.
        """
        async with asyncio.timeout(self.settings.call_timeout_s + 5):
            return await call

    # connection

    @abc.abstractmethod
    async def connect(self) -> None:
        """Connect and read the epochs.

        Raises:
            Unavailable: no server responds; the message explains how to start one.
            ConfigError: Redis has data for another partition count, or is configured to evict keys.
                Nothing has been written then.
        """

    @abc.abstractmethod
    async def maintain_connection(self) -> None:
        """Reconnect whenever a connection is lost, with jitter, until cancelled."""

    async def watch_epochs(self) -> None:
        """Check epochs, writes and the memory of Redis each second, until cancelled.

        Each check covers the next `EPOCHS_CHECKED_MAX` partitions.
        """
        partitions = itertools.cycle(range(self.settings.partitions))
        count = min(self.settings.partitions, EPOCHS_CHECKED_MAX)
        while True:
            await sleep_aligned(EPOCH_CHECK_S)
            await asyncio.gather(
                *(self._check_epoch(n) for n in itertools.islice(partitions, count)),
                self.health.check(),
            )

    async def _check_epoch(self, partition: int) -> None:
        known_epoch = self.epochs[partition]
        try:
            epoch, blocked = await self.call(
                "HMGET", self.keys.epoch(partition), "epoch", "blocked"
            )
        except ChatError:
            return  # Redis is unavailable; the next connection reads the epoch
        if (blocked or epoch != known_epoch.encode()) and known_epoch == self.epochs[partition]:
            log.warning("hot.epoch_lost", redis=self.name, partition=partition)
            self.reload_epoch(partition)

    @abc.abstractmethod
    def get_keys_by_server(self) -> dict[str, str]:
        """Return one existing key for each connected server, by server name."""

    def raise_epoch_lost(self, partition: int, epoch: Epoch) -> NoReturn:
        """Report that Redis no longer has `epoch`, so that the partition's epoch is read again.

        Raises:
            Unavailable: always; the caller must restart its operation in the new epoch.
        """
        if epoch == self.epochs[partition]:
            log.warning("hot.epoch_lost", redis=self.name, partition=partition)
            self.reload_epoch(partition)
        raise Unavailable(
            f"redis at {self.name}: lost its data, which is being reloaded", public=REDIS_DOWN
        )

    @abc.abstractmethod
    def reload_epoch(self, partition: int) -> None:
        """Start to read the partition's epoch again, because it was lost or has changed."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Close all connections."""

    def _create_blocking_client_at(self, address: RedisAddress) -> redis.asyncio.Redis:
        """Return a redis-py client without retries, because a retry could run a call twice."""
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            address.url,  # redis-py reads the TLS options of the URL, too
            # `with_deadline` limits the call instead. redis-py uses wait_for, which can lose a
            # cancellation in Python 3.11; the reader would then never end.
            socket_timeout=None,
            socket_connect_timeout=self.settings.call_timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        return client

    async def _check_epochs(
        self, wire: PipelinedConnection, partitions: Sequence[int]
    ) -> list[Epoch]:
        """Check the settings stored with the partitions' epochs, and return the epochs.

        Call this for all partitions before `_load_epoch` for any: a process with wrong settings
        must not write into a Redis that others use.

        Raises:
            ConfigError: Redis is blocked, or belongs to another tenant or partition count.
        """
        read = (epochs.read_epoch(wire, self.keys, self.settings, n) for n in partitions)
        return [self._check_loaded(loaded) for loaded in await asyncio.gather(*read)]

    async def _load_epoch(
        self, wire: PipelinedConnection, partition: int, replid: str, came_from: str
    ) -> Epoch:
        """Return the partition's epoch; see `epochs.load_epoch`. Raises like `_check_epochs`."""
        return self._check_loaded(
            await epochs.load_epoch(
                wire=wire,
                keys=self.keys,
                settings=self.settings,
                partition=partition,
                replid=replid,
                came_from=came_from,
            )
        )

    def _check_loaded(self, loaded: epochs.LoadedEpoch) -> Epoch:
        self._set_blocked(loaded.blocked)
        if self.blocked:
            raise ConfigError(f"{self.blocked}; see `chatserver tenants list`")
        loaded.check_settings(self.settings)
        return loaded.epoch

    def _set_blocked(self, blocked: str) -> None:
        if blocked == self.blocked:
            return
        self.blocked = blocked
        log.warning("hot.block_changed", redis=self.name, blocked=blocked)
        for callback in self.on_blocked:
            callback(blocked)

    @property
    def wait_ms(self) -> int:
        """Timeout in ms for the WAIT or WAITAOF of a commit."""
        return max(1, int(self.settings.call_timeout_s * 250))

    def _make_unavailable(self) -> Unavailable:
        if self.blocked:
            return Unavailable(self.blocked)
        return Unavailable(f"redis at {self.name}: not connected", public=REDIS_DOWN)
