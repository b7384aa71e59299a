"""Administration of one tenant's Redis: owner, block, size and all keys.

A Redis has the data of one tenant. In the hash ``{pN}:epoch``, ``tenant`` is the tenant, and
``blocked`` is the reason why the partition must not be used. `chatserver.hot.redis.client` reads
both when it connects and every second. The connections here skip that check, so that a blocked
Redis can be emptied.

When `block` returns, no process uses the Redis: all older connections are closed, and a client
finds the block when it reconnects. In a cluster, clients can reconnect without reading the epoch;
they find the block in their next periodic check, and `block` waits for that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chatserver import config
from chatserver.domain.access.tenants import format_tenant
from chatserver.errors import REDIS_DOWN, ConfigError, Unavailable
from chatserver.hot.redis.client import EPOCH_CHECK_S, EPOCHS_CHECKED_MAX
from chatserver.hot.redis.cluster_map import parse_view
from chatserver.hot.redis.connection_setup import RedisAddress
from chatserver.hot.redis.keys import Keys, get_slot
from chatserver.hot.redis.sentinels import find_master

KEYS_PER_CALL: Final = 500  # keys per SCAN or UNLINK
CALL_TIMEOUT_S: Final = 30.0  # timeout of a call, which can read or delete a page of large keys
_EPOCH_SUFFIX: Final = b"}:epoch"
_TENANT, _BLOCKED = b"tenant", b"blocked"
_READERS: Final[Mapping[bytes, tuple[str | int, ...]]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"stream": ("XRANGE", "-", "+"),
    b"list": ("LRANGE", 0, -1),
}


class RedisOwner(NamedTuple):
    """The tenant of a Redis (None if Redis is empty), and why it is blocked ("" if it is not)."""

    tenant: str | None
    blocked: str


class RedisSize(NamedTuple):
    """Number of keys in the database, and memory usage of the servers, including overhead."""

    keys: int
    bytes: int


class TenantRedis:
    """Connections to all masters of a Redis. Created by `open_tenant_redis`."""

    def __init__(self, settings: config.Redis, masters: Sequence[_Master]) -> None:
        self._settings = settings
        self._keys = Keys(settings.partitions)
        self._masters = masters

    async def get_owner(self) -> RedisOwner:
        """Return the tenant of the Redis, and why it is blocked.

        Raises:
            ConfigError: Redis was initialized with another number of partitions.
        """
        tenant, blocked, partitions = await self._get_master(0).call(
            "HMGET", self._keys.epoch(0), _TENANT, _BLOCKED, "partitions"
        )
        if partitions is not None and int(partitions) != self._settings.partitions:
            raise ConfigError(
                f"redis.partitions (CHAT_REDIS_PARTITIONS): is {self._settings.partitions}, "
                f"but this Redis was initialized with {int(partitions)}"
            )
        owner = None if tenant is None and partitions is None else (tenant or b"").decode()
        return RedisOwner(owner, (blocked or b"").decode())

    async def require_owner(self, tenant: str) -> None:
        """Check that the Redis belongs to the tenant or is empty.

        Raises:
            ConfigError: Redis belongs to another tenant.
        """
        owner = (await self.get_owner()).tenant
        if owner not in (None, tenant):
            raise ConfigError(
                "redis.url (CHAT_REDIS_URL): this Redis belongs to "
                f"{format_tenant(owner or '')}, not to {format_tenant(tenant)}; "
                "set the URL of the tenant's own Redis"
            )

    async def block(self, tenant: str, reason: str) -> None:
        """Make all processes refuse calls, and close their connections. Idempotent."""
        for partition in range(self._settings.partitions):
            await self._get_master(partition).call(
                "HSET", self._keys.epoch(partition), _TENANT, tenant, _BLOCKED, reason
            )
        for master in self._masters:
            await master.close_other_connections()
        if self._settings.cluster:
            rounds = -(-self._settings.partitions // EPOCHS_CHECKED_MAX)
            await asyncio.sleep(rounds * EPOCH_CHECK_S + self._settings.call_timeout_s)

    async def unblock(self) -> None:
        """Remove the block; running processes reconnect. Idempotent."""
        for partition in range(self._settings.partitions):
            await self._get_master(partition).call("HDEL", self._keys.epoch(partition), _BLOCKED)

    async def count_unpersisted(self) -> int:
        """Return the number of entries in the backlogs that are not completely in DynamoDB."""
        total = 0
        for partition in range(self._settings.partitions):
            master, backlog = self._get_master(partition), self._keys.backlog(partition)
            done = await master.call("HGET", self._keys.checkpoint(partition), "id") or b"0-0"
            if await master.call("XRANGE", backlog, f"({done.decode()}", "+", "COUNT", 1):
                total += await master.call("XLEN", backlog)
        return total

    async def measure(self) -> RedisSize:
        keys = size = 0
        for master in self._masters:
            keys += await master.call("DBSIZE")
            size += int((await master.info("memory"))["used_memory"])
        return RedisSize(keys, size)

    async def iter_pages(self) -> AsyncIterator[list[bytes]]:
        """Yield all keys of the database in pages; a key may be in more than one page."""
        for master in self._masters:
            async for page in master.iter_pages():
                yield page

    async def delete_pages(self) -> AsyncIterator[int]:
        """Delete all data page by page; yield the number of keys deleted per page.

        Of the epoch hashes, only the tenant and the block remain.
        """
        for master in self._masters:
            async for page in master.iter_pages():
                yield await master.delete(page)

    async def find_remaining(self, limit: int) -> tuple[list[str], int]:
        """Return at most `limit` keys that have data, and the number of keys checked."""
        keys: list[str] = []
        checked = 0
        for master in self._masters:
            async for page in master.iter_pages():
                checked += len(page)
                for key in page:
                    if len(keys) < limit and await master.has_data(key):
                        keys.append(key.decode(errors="replace"))
        return keys, checked

    async def iter_records(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield pages of keys with type, TTL (ms, or None) and value, as JSON-compatible objects.

        A value that is not UTF-8 is encoded as ``{"base64": …}``.
        """
        for master in self._masters:
            async for page in master.iter_pages():
                yield [item for key in page if (item := await master.read(key)) is not None]

    def _get_master(self, partition: int) -> _Master:
        slot = get_slot(self._keys.epoch(partition))
        for master in self._masters:
            if master.has_slot(slot):
                return master
        raise Unavailable(f"redis: no node serves slot {slot}")


class _Master:
    """One connection to a master. Calls run one at a time."""

    def __init__(
        self, address: RedisAddress, settings: config.Redis, slots: Sequence[tuple[int, int]]
    ) -> None:
        self.name = address.name
        self._slots = slots
        self._database = address.database
        self._client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            address.url,
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=settings.call_timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            single_connection_client=True,
        )

    def has_slot(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self._slots)

    async def call(self, *args: Any) -> Any:
        with _translate_errors(self.name):
            return await self._client.execute_command(*args)  # type: ignore[no-untyped-call]  # redis-py

    async def info(self, section: str) -> dict[str, Any]:
        with _translate_errors(self.name):
            return await self._client.info(section)

    async def close_other_connections(self) -> None:
        """Close all other client connections to this database; replication stays connected."""
        with _translate_errors(self.name):
            own = int(await self._client.client_id())
            clients = await self._client.client_list()
        for client in clients:
            is_server = {"S", "M"} & {*client["flags"]} or client["name"].startswith("sentinel")
            if int(client["id"]) != own and int(client["db"]) == self._database and not is_server:
                with _translate_errors(self.name):
                    await self._client.client_kill_filter(_id=client["id"])

    async def iter_pages(self) -> AsyncIterator[list[bytes]]:
        cursor = 0
        while True:
            reply = await self.call("SCAN", cursor, "COUNT", KEYS_PER_CALL)
            cursor = int(reply[0])
            if reply[1]:
                yield list(reply[1])
            if cursor == 0:
                return

    async def delete(self, page: Sequence[bytes]) -> int:
        own_keys = [key for key in page if not key.endswith(_EPOCH_SUFFIX)]
        by_slot: dict[int, list[bytes]] = {}  # In a cluster, all keys of a call share a slot.
        for key in own_keys:
            by_slot.setdefault(get_slot(key), []).append(key)
        with _translate_errors(self.name):
            pipeline = self._client.pipeline(transaction=False)
            for keys in by_slot.values():
                pipeline.unlink(*keys)
            deleted = sum(int(count) for count in await pipeline.execute())
        for key in set(page) - {*own_keys}:
            fields = set(await self.call("HKEYS", key)) - {_TENANT, _BLOCKED}
            if fields:
                await self.call("HDEL", key, *fields)
                deleted += 1
        return deleted

    async def has_data(self, key: bytes) -> bool:
        if not key.endswith(_EPOCH_SUFFIX):
            return True
        return bool(set(await self.call("HKEYS", key)) - {_TENANT, _BLOCKED})

    async def read(self, key: bytes) -> dict[str, Any] | None:
        kind = await self.call("TYPE", key)
        kind = kind if isinstance(kind, bytes) else str(kind).encode()
        if kind not in _READERS:
            return None  # the key has expired
        command, *arguments = _READERS[kind]
        value = await self._call_raw(command, key, *arguments)
        ttl_ms = int(await self.call("PTTL", key))
        return {
            "key": _as_json(key),
            "type": kind.decode(),
            "ttl_ms": ttl_ms if ttl_ms >= 0 else None,
            "value": _as_json(value),
        }

    async def _call_raw(self, *args: Any) -> Any:
        """Send a command and return its raw reply, not converted by redis-py."""
        with _translate_errors(self.name):
            connection = self._client.connection
            assert connection is not None
            await connection.send_command(*args)
            return await connection.read_response()

    async def open(self) -> None:
        with _translate_errors(self.name):
            await self._client.initialize()

    async def close(self) -> None:
        await self._client.aclose()


@contextlib.asynccontextmanager
async def open_tenant_redis(settings: config.Redis) -> AsyncIterator[TenantRedis]:
    """Connect to the configured Redis, even if it is blocked.

    Raises:
        Unavailable: a server does not respond.
        ConfigError: the address is invalid, or the server refuses the login.
    """
    async with contextlib.AsyncExitStack() as stack:
        masters = []
        for address, slots in await _list_masters(settings):
            master = _Master(address, settings, slots)
            stack.push_async_callback(master.close)
            await master.open()
            masters.append(master)
        yield TenantRedis(settings, masters)


async def _list_masters(
    settings: config.Redis,
) -> list[tuple[RedisAddress, Sequence[tuple[int, int]]]]:
    address = RedisAddress(settings.url)
    if settings.sentinels:
        address = await find_master(address, settings)
    if not settings.cluster:
        return [(address, [(0, 16_383)])]
    seed = _Master(address, settings, [])
    try:
        await seed.open()
        text = await seed._call_raw("CLUSTER", "NODES")
    finally:
        await seed.close()
    view = parse_view(text.decode(), address.host, by_name=address.is_tls)
    return [
        (address.at(member.host, member.port), member.slots)
        for member in view.members.values()
        if member.is_master and member.slots
    ]


@contextlib.contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (redis.exceptions.NoPermissionError, redis.exceptions.AuthenticationError) as exc:
        raise ConfigError(f"redis at {name}: {exc}") from exc
    except (redis.exceptions.RedisError, OSError, TimeoutError) as exc:
        raise Unavailable(f"redis at {name}: {exc or 'timed out'}", public=REDIS_DOWN) from exc


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [_as_json(element) for element in value]
        case set():
            return sorted(_as_json(element) for element in value)
        case dict():
            return [[_as_json(name), _as_json(each)] for name, each in value.items()]
        case _:
            return value
