"""The hot tier's client, as everybody sees it: a Redis server, or a Redis Cluster.

`chatserver.hot.single` keeps one connection to a server, `chatserver.hot.cluster` one to each
master of a cluster. Both learn the epochs before they let a call through: a server that is another
one, or that came back from disk, gets another epoch, because it may have gone back in time
(promises P1, P5). A server that was emptied under us is still the same one: so each process looks
now and then whether the epochs are there, and learns them anew where they are not.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import hashlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import redis.asyncio
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chatserver import config
from chatserver.domain.ids import ULID_TIME_CHARS, Epoch, new_id
from chatserver.errors import ChatError, ConfigError, CorruptData, Unavailable
from chatserver.hot.connecting import Address
from chatserver.hot.keys import Keys
from chatserver.hot.replies import Durable, NoScript, call_on, set_future, translate_reply_error
from chatserver.hot.scripts import Script, Value, load_script
from chatserver.hot.wire import OnReply, Reply, Wire, key_in

log = structlog.get_logger()

RECONNECT_S_MAX = 1.0
EPOCH_LOOK_S = 1.0
EPOCHS_LOOKED_MAX = 64  # partitions looked at in a turn


class HotClient(abc.ABC):
    """One process's way to the hot tier. Made by `open_hot`."""

    # True if calls reach Redis in the order in which they were made, whatever their keys; else
    # that is so for the calls of one partition.
    is_ordered: bool

    def __init__(self, settings: config.Redis) -> None:
        self.settings = settings
        self.keys = Keys(settings.partitions)
        self.epochs: list[Epoch] = [Epoch("")] * settings.partitions
        self._whole, self._whole_of = Epoch(""), list[Epoch]()
        # Servers that answer and yet take nothing, and why, such as a full disk.
        self.refusals: dict[str, str] = {}
        self.refusal = ""  # of one of them, where none takes anything
        self.on_epoch: list[Callable[[], None]] = []
        self.on_reload: list[Callable[[], None]] = []
        self.address = Address(settings.url)
        self.name = self.address.name
        self._durable = Durable(settings.wait_replicas, settings.wait_fsync)
        # Shorter than a call's deadline: what is behind it on the connection waits, too.
        self._wait = self._durable.command(self.wait_ms)

    # calls

    @property
    @abc.abstractmethod
    def is_up(self) -> bool:
        """True while Redis answers and the epoch is known; of a cluster: any part of it."""

    @abc.abstractmethod
    def send(self, on_reply: OnReply, *args: Value) -> None:
        """Make a call without waiting; `on_reply` gets the reply or the error.

        Guarantees:
            Order: with all calls on keys of the same partition; see `is_ordered`.
            Answer: `on_reply` runs exactly once, later. After `Unavailable` it may have run.
        """

    def commit(self, on_reply: OnReply, *args: Value) -> None:
        """Make a call whose answer is a promise to a client; as `send`.

        Guarantees:
            Durability: with `redis.wait_replicas`, an answer means that so many replicas have what
                was written; with `redis.wait_fsync`, that it is on the disk of Redis. Else
                `on_reply` gets `Unavailable`, and it may have run.
        """
        if self._durable.is_on:
            self._send_and_wait(on_reply, args)
        else:
            self.send(on_reply, *args)

    @abc.abstractmethod
    def _send_and_wait(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        """Send a call and a WAIT or WAITAOF behind it, and judge both."""

    async def call(self, *args: Value) -> Any:
        """Make a call and return its reply.

        Guarantees:
            Order: as `send`.
            Cancellation: the call may still run; its reply is dropped.

        Raises:
            Unavailable: no answer in time, or Redis refuses for now; it may have run.
        """
        return await self._answer_of(self.send, args)

    async def _answer_of(self, make: Callable[..., None], args: Sequence[Any]) -> Any:
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
        """Run a script by its header's names; loads it again if Redis forgot it.

        `is_commit`: its answer is a promise to a client; see `commit`.
        """
        key_list, arg_list = script.bind(keys, args, items)
        tail = (len(key_list), *key_list, *arg_list)
        make = self.commit if is_commit else self.send
        try:
            return await self._answer_of(make, ("EVALSHA", script.sha, *tail))
        except NoScript:
            return await self._answer_of(make, ("EVAL", script.source, *tail))

    async def transaction(self, *calls: tuple[Value, ...]) -> list[Any]:
        """Run calls on keys of one partition as one, and return their replies.

        A full Redis runs them, too: only for what is bounded, or frees memory. A call without a
        key, such as TIME, runs where the other keys are.

        Raises:
            Unavailable: as `call`.
        """
        replies: list[Any] = await self._answer_of(
            functools.partial(self._send_script, load_script("transaction")), calls
        )
        return replies

    async def snapshot(self, *calls: tuple[Value, ...]) -> list[Any]:
        """Run calls that only read keys of one partition at one moment; see `transaction`."""
        replies: list[Any] = await self._answer_of(
            functools.partial(self._send_script, load_script("snapshot")), calls
        )
        return replies

    async def time_ms(self, key: str) -> int:
        """Return the time of the Redis that has `key`: clocks of processes may differ."""
        _, (seconds, micros) = await self.snapshot(("EXISTS", key), ("TIME",))
        return int(seconds) * 1000 + int(micros) // 1000

    async def write(self, *args: Value) -> Any:
        """Make a call that writes, on a full Redis, too; see `transaction`."""
        return await self._answer_of(self.post, args)

    async def create_group(self, key: str, group: str) -> None:
        """Make a consumer group that reads a stream from its beginning, if there is none."""
        try:
            await self.write("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
        except CorruptData as exc:
            if "BUSYGROUP" not in exc.message:
                raise

    def post(self, on_reply: OnReply, *args: Value) -> None:
        """Make a call that writes without waiting, on a full Redis, too; see `send`."""

        def unwrap(reply: Reply) -> None:
            on_reply(reply if isinstance(reply, Exception) else reply[0])

        self._send_script(load_script("transaction"), unwrap, args)

    def _send_script(self, script: Script, on_reply: OnReply, *calls: tuple[Value, ...]) -> None:
        keys = [key for call in calls if (key := key_in(call)) is not None]
        words = [word for call in calls for word in (len(call), *call)]
        tail = (len(keys), *keys, *words)

        def answered(reply: Reply) -> None:
            if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
                self.send(on_reply, "EVAL", script.source, *tail)
            else:
                on_reply(reply)

        self.send(answered, "EVALSHA", script.sha, *tail)

    def epoch_of(self, partition: int) -> Epoch:
        """Return the epoch of a partition, as of the present connection."""
        return self.epochs[partition]

    @property
    def whole_epoch(self) -> Epoch:
        """The epoch that devices are told: another one if that of any partition is.

        A user's inbox may be where nothing was lost, and a chat of theirs where something was: who
        sent there has to hear of it, to offer again what was acked and not stored (promise P1).
        """
        if self._whole_of != self.epochs:
            self._whole_of = list(self.epochs)
            self._whole = _join_epochs(self._whole_of)
        return self._whole

    def told_epoch(self, epoch: Epoch) -> Epoch:
        """Return what devices are told instead of the epoch of a partition.

        What is of no present epoch stays as it is: no device is at that.
        """
        return self.whole_epoch if epoch in self.epochs else epoch

    @abc.abstractmethod
    def blocking_client(self, key: str) -> redis.asyncio.Redis:
        """Return a redis-py client for blocking reads of a key; the caller closes it.

        After any failure of it, ask for another: the key may have moved.

        Raises:
            Unavailable: nobody serves the key now.
        """

    async def within(self, call: Awaitable[Any]) -> Any:
        """Await a call of a blocking client, with a deadline; TimeoutError is an OSError."""
        async with asyncio.timeout(self.settings.call_timeout_s + 5):
            return await call

    # connection

    @abc.abstractmethod
    async def connect(self) -> None:
        """Connect and learn the epochs.

        Raises:
            Unavailable: nothing answers there; the message says how to start one.
            ConfigError: Redis was started with another partition count, or would evict our keys.
        """

    @abc.abstractmethod
    async def keep_connected(self) -> None:
        """Reconnect whenever a connection is lost, with jitter, until cancelled."""

    async def watch_epochs(self) -> None:
        """Look whether the epochs are still there, a part of them each second, until cancelled.

        And whether Redis takes what is written: it says no while it cannot keep it on its disk.
        """
        partitions = itertools.cycle(range(self.settings.partitions))
        count = min(self.settings.partitions, EPOCHS_LOOKED_MAX)
        while True:
            await asyncio.sleep(EPOCH_LOOK_S)
            await asyncio.gather(
                *(self._look_at_epoch(n) for n in itertools.islice(partitions, count)),
                self._look_for_refusal(),
            )

    async def _look_at_epoch(self, partition: int) -> None:
        known = self.epochs[partition]
        try:
            found: bytes | None = await self.call("HGET", self.keys.epoch(partition), "epoch")
        except ChatError:
            return  # it is away, or in trouble: whoever connects learns the epoch
        if found != known.encode() and known == self.epochs[partition]:
            log.warning("hot.epoch_lost", redis=self.name, partition=partition)
            self.doubt(partition)

    @abc.abstractmethod
    def keys_by_server(self) -> dict[str, str]:
        """Return a key of ours on each server that we are connected to, by the server's name."""

    async def _look_for_refusal(self) -> None:
        keys, before = self.keys_by_server(), self.refusals
        found = await asyncio.gather(*map(self._find_refusal, keys.values()))
        self.refusals = {name: why for name, why in zip(keys, found, strict=True) if why}
        names = ", ".join(sorted(keys))
        self.refusal = f"redis at {names}: {found[0]}" if keys and all(found) else ""
        for name in self.refusals.keys() - before.keys():
            log.error("hot.writes_refused", redis=name, error=self.refusals[name])
        for name in before.keys() - self.refusals.keys():
            log.info("hot.writes_taken_again", redis=name)

    async def _find_refusal(self, key: str) -> str:
        """Return why a write is not taken; empty if it is, or Redis does not answer.

        The write changes nothing, and Redis refuses it for all that it refuses a message for: a
        full memory, too.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(found: Reply) -> None:
            if not reply.done():
                reply.set_result(found)

        self.send(on_reply, "SETRANGE", f"{key}:probe", 0, "")
        found = await reply
        is_refused = isinstance(found, Exception) and not isinstance(found, ChatError)
        return translate_reply_error(found).message if is_refused else ""

    def doubt_epoch(self, partition: int, epoch: Epoch) -> NoReturn:
        """Learn the epoch of a partition anew: Redis says that `epoch` is not the one it is in.

        Raises:
            Unavailable: always; what was begun in that epoch is to be begun again.
        """
        if epoch == self.epochs[partition]:
            log.warning("hot.epoch_lost", redis=self.name, partition=partition)
            self.doubt(partition)
        raise Unavailable(f"redis at {self.name}: lost what it had; it is being filled again")

    @abc.abstractmethod
    def doubt(self, partition: int) -> None:
        """Learn the epoch of a partition anew: Redis lost it, or has another one."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Drop every connection."""

    def _blocking_client_at(self, address: Address) -> redis.asyncio.Redis:
        """Return a client whose own retries are off: they would run again what already ran."""
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            address.url,
            # Its deadline is `within`: redis-py's own uses wait_for, which in Python 3.11 can
            # swallow a cancellation, and then a reader goes on for ever.
            socket_timeout=None,
            socket_connect_timeout=self.settings.connect_timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        return client

    async def _learn_epoch(self, wire: Wire, partition: int, life: str, came_from: str) -> Epoch:
        """Return the epoch of a partition; another one if its server may have gone back.

        `came_from`: the life in which it was served before, if it came from there without loss.
        """
        script = load_script("epoch")
        keys, args = script.bind(
            {"epoch": self.keys.epoch(partition)},
            {
                "replid": life,
                "came_from": came_from,
                "suffix": new_id()[ULID_TIME_CHARS:],
                "partitions": self.settings.partitions,
            },
        )
        # Not EVALSHA: here it is rare, and the script may have been flushed.
        epoch, partitions = await call_on(wire, "EVAL", script.source, len(keys), *keys, *args)
        if partitions != self.settings.partitions:
            raise ConfigError(
                [
                    f"redis.partitions: is {self.settings.partitions}, but this Redis was "
                    f"started with {partitions}; drain and empty it to change the number"
                ]
            )
        return Epoch(epoch.decode())

    @property
    def wait_ms(self) -> int:
        """Timeout of a commit's wait for replicas and disks."""
        return max(1, int(self.settings.call_timeout_s * 250))

    def _down(self) -> Unavailable:
        return Unavailable(f"redis at {self.name}: not connected")


def _join_epochs(epochs: Sequence[Epoch]) -> Epoch:
    """Return one name for what all partitions have; with one partition, its epoch."""
    if len(epochs) == 1:
        return epochs[0]
    digest = hashlib.sha256(",".join(epochs).encode()).hexdigest()
    return Epoch(digest[:26])


def make_hot(settings: config.Redis) -> HotClient:
    """Return the client that the settings ask for, not connected.

    Raises:
        ConfigError: the address is none.
    """
    # Imported here, because both of them need `HotClient`.
    if settings.cluster:
        from chatserver.hot.cluster import ClusterClient

        return ClusterClient(settings)
    from chatserver.hot.single import SingleClient

    return SingleClient(settings)


@contextlib.asynccontextmanager
async def open_hot(settings: config.Redis) -> AsyncIterator[HotClient]:
    """Connect, keep connected, and close at the end.

    Raises:
        Unavailable: there is no Redis at the address.
        ConfigError: it is not one that we can use.
    """
    client = make_hot(settings)
    try:
        await client.connect()
        helpers = [
            asyncio.create_task(client.keep_connected(), name="hot-keeper"),
            asyncio.create_task(client.watch_epochs(), name="hot-epochs"),
        ]
        try:
            yield client
        finally:
            for helper in helpers:
                helper.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await helper
    finally:
        await client.close()


__all__ = ["HotClient", "NoScript", "make_hot", "open_hot", "translate_reply_error"]
