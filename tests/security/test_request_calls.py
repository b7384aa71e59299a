"""Calls to Redis and DynamoDB of the most expensive request of each frame and route.

A frame or a route without a bound fails. All calls of all processes between a request and its
response are counted; a script is one call, and so is a batch request to DynamoDB. The requests are
those of the authorization matrices; `MOST_EXPENSIVE` makes them as large as the protocol allows.
Routes of resources that no row creates (posts, companions, files, devices) are only counted up to
their 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import msgspec
import pytest

from chatserver.auth.api_keys import SCOPES
from chatserver.protocol.frames import INVITE_MAX, MEMBERS_MAX, PAGE_MAX, WATCH_MAX
from tests.security import test_authorization_frames as frame_matrix
from tests.security import test_authorization_http as http_matrix
from tests.security.support.access_matrix import ROLES, Kind, Row, World
from tests.security.support.request_bounds import BOUNDS
from tests.security.support.users import make_key
from tests.support.rawchat import RawChat
from tests.support.servers.dynamodb_proxy import DynamoProxy
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, Stack, start_async
from tests.support.wire import DEADLINE_S

T = TypeVar("T")
_numbers = itertools.count()
OTHERS = [f"other-{number}" for number in range(MEMBERS_MAX - 1)]
CHATS, MESSAGES = 25, 60
ATTEMPTS = 8  # heartbeats may be counted, so one attempt within the bounds is enough
IDLE_S, IDLE_CHECKS_MAX = 0.05, 200
NO_RESPONSE = ("typing", "watch", "unwatch", "state")
# Rows after which other rows cannot use the world.
DESTRUCTIVE = (
    "DELETE", "leave", "ban", "remove", "mute", "logout", "password", "hold", "retention", "/v1/me"
)  # fmt: skip
# Nothing is persisted, so these find nothing or time out.
UNSTORED = {
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": 404,
    "PUT /v1/chats/{chat}/pins/{seq}": 503,
}
MOST_EXPENSIVE: dict[str, dict[str, Any]] = {
    "create_chat": {"members": OTHERS},
    "invite": {"users": OTHERS[:INVITE_MAX]},
    "watch": {"users": OTHERS[:WATCH_MAX]},
    "unwatch": {"users": OTHERS[:WATCH_MAX]},
    "history": {"limit": PAGE_MAX},
    "chats": {"limit": PAGE_MAX},
    "blocks": {"limit": PAGE_MAX},
    "invitations": {"limit": PAGE_MAX},
    "sync": {"limit": PAGE_MAX},
    "POST /v1/chats": {"members": OTHERS},
    "POST /v1/admin/chats": {"members": OTHERS},
    "POST /v1/chats/{chat}/members": {"users": OTHERS[:INVITE_MAX]},
    "POST /v1/admin/broadcasts": {"users": OTHERS[:100]},
}
DOCUMENT = msgspec.json.decode(http_matrix.DOCUMENT.read_bytes())["paths"]


class CallCounts(NamedTuple):
    """Calls to Redis and to DynamoDB."""

    redis: int
    dynamodb: int


class Calls:
    """Counts calls: to Redis by MONITOR, to DynamoDB at the proxy. Use `open_calls`."""

    def __init__(
        self, reader: asyncio.StreamReader, marker: asyncio.StreamWriter, proxy: DynamoProxy
    ) -> None:
        self._reader = reader
        self._marker = marker
        self._proxy = proxy
        self._marks = 0
        (host, port) = marker.get_extra_info("sockname")
        self._own = f"{host}:{port}".encode()

    async def count(self, request: Awaitable[T]) -> tuple[CallCounts, T]:
        """Send a request; return the number of calls before its response, and the response.

        The request starts when the stores are idle, so that background work of earlier requests is
        not counted.
        """
        await self._wait_until_idle()
        before = len(self._proxy.calls)
        answer = await request
        dynamodb = len(self._proxy.calls) - before
        return CallCounts(await self._read_to_mark(), dynamodb), answer

    async def _wait_until_idle(self) -> None:
        """Wait for an interval without calls, at most `IDLE_CHECKS_MAX` intervals."""
        await self._read_to_mark()
        for _ in range(IDLE_CHECKS_MAX):
            before = len(self._proxy.calls)
            await asyncio.sleep(IDLE_S)
            redis = await self._read_to_mark()
            if not redis and len(self._proxy.calls) == before:
                return

    async def _read_to_mark(self) -> int:
        """Return the number of calls to Redis since the last mark, except those of scripts."""
        self._marks += 1
        mark = b"mark-%d" % self._marks
        self._marker.write(b"ECHO %s\r\n" % mark)
        calls = 0
        async with asyncio.timeout(DEADLINE_S):
            while mark not in (line := await self._reader.readline()):
                assert line, "Redis closed the connection"
                calls += b"[0 lua]" not in line and self._own not in line
        return calls


@contextlib.asynccontextmanager
async def open_calls(port: int, proxy: DynamoProxy) -> AsyncIterator[Calls]:
    """Start counting the calls to Redis and DynamoDB."""
    reader, monitor = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    _, marker = await asyncio.open_connection("127.0.0.1", port)
    try:
        monitor.write(b"MONITOR\r\n")
        assert await reader.readline() == b"+OK\r\n"
        yield Calls(reader, marker, proxy)
    finally:
        monitor.transport.abort()
        marker.transport.abort()


@contextlib.asynccontextmanager
async def open_counted_stack(folder: Path) -> AsyncIterator[tuple[Stack, httpx.AsyncClient, Calls]]:
    """Start a gateway, an API and an rpc worker; nothing is persisted meanwhile."""
    env = {
        **PATIENT,
        "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
        "chatserver.auth.passwords.ARGON2_PASSES": "1",
        "CHAT_LIMITS_MEMORY": "180/s burst 1000000000",
        "CHAT_LIMITS_ENTRIES": "0.5/s burst 100000",
        "CHAT_LIMITS_LOGINS": "0.05/s burst 1000",
        "CHAT_COLD_ENDPOINT": "http://127.0.0.1:9",
        "CHAT_COLD_ACCESS_KEY": "none",
        "CHAT_COLD_SECRET_KEY": "none",
    }
    stack = Stack(folder, "no", env)
    try:
        stack.start_servers()
        async with DynamoProxy(stack.dynamodb.endpoint) as proxy:
            env["CHAT_WARM_ENDPOINT"] = proxy.endpoint
            api = stack.add_api()
            await asyncio.gather(
                *map(start_async, (stack.add_worker("rpc"), stack.add_gateway(), api))
            )
            await stack.add_users(OTHERS)
            async with (
                httpx.AsyncClient(base_url=api.endpoint, timeout=60) as client,
                open_calls(stack.redis.port, proxy) as calls,
            ):
                yield stack, client, calls
            stack.stop()  # this is first, so that the connections of the proxy end
    finally:
        stack.stop()


def test_every_frame_and_route_has_bounds() -> None:
    """A new frame or route needs an upper bound of its calls, and its measured CPU time."""
    assert set(BOUNDS) == frame_matrix.all_tags() | set(http_matrix.RULES)


def exceeds(name: str, counted: CallCounts) -> bool:
    """Return whether a request made more calls than its bounds allow."""
    return counted.redis > BOUNDS[name].redis or counted.dynamodb > BOUNDS[name].dynamodb


async def run_frame(stack: Stack, world: World, calls: Calls, tag: str) -> CallCounts:
    """Send the most expensive frame of a type as a group owner; return its calls."""
    row = frame_matrix.ROWS[tag]
    fields = world.fill(row.fields or {}, await world.send("owner")) | MOST_EXPENSIVE.get(tag, {})
    if "ref" in fields:
        fields["ref"] = f"{tag}-{next(_numbers)}"
    if tag == "auth":
        fields["token"] = stack.token(world.users["owner"])
    async with stack.chat_of(world.users["owner"]) as device:
        counted, _ = await calls.count(_send_frame(device, tag, fields, row))
    return counted


async def _send_frame(device: RawChat, tag: str, fields: dict[str, Any], row: Row) -> None:
    if tag in NO_RESPONSE:
        await device.send_frame(tag, **fields)
        await device.request(
            "chats"
        )  # this is answered after the frame was handled; its own calls are counted too
        return
    if row.but.get("owner", row.ok) in ("bad_request", "not_found"):
        with pytest.raises(frame_matrix.Failed):
            await device.request(tag, **fields)
        return
    await device.request(tag, **fields)


async def run_route(
    world: World, calls: Calls, client: httpx.AsyncClient, key: str, operation: str
) -> CallCounts:
    """Send the most expensive request of a route as a group owner; return its calls."""
    row = http_matrix.ROWS[operation]
    seq = world.own_seq if row.kind is not Kind.SENDER else await world.send("owner")
    if operation in MOST_EXPENSIVE:
        row = Row(row.kind, row.ok, {**(row.fields or {}), **MOST_EXPENSIVE[operation]}, row.but)
    headers = world.headers("owner")
    if http_matrix.scope_of(operation) is not None and row.kind is Kind.APPLICATION:
        headers = {"Authorization": f"Bearer {key}", "X-Chat-As": world.users["owner"]}
    client.params = httpx.QueryParams(_limit_of(operation))
    counted, answer = await calls.count(
        http_matrix.request(client, operation, row, world, seq, headers)
    )
    client.params = httpx.QueryParams()
    wanted = UNSTORED.get(operation, row.but.get("owner", row.ok))
    assert answer.status_code == wanted, (operation, answer.status_code, answer.text)
    if operation == "POST /v1/admin/broadcasts":
        await wait_for_broadcast(client, answer.json()["broadcast"], headers)
    return counted


async def wait_for_broadcast(client: httpx.AsyncClient, job: str, headers: dict[str, str]) -> None:
    """Wait until a broadcast, which runs in the background, is done."""

    async def is_done() -> bool:
        answer = await client.get(f"/v1/admin/broadcasts/{job}", headers=headers)
        return bool(answer.json()["state"] == "done")

    await eventually(is_done, 120, "the broadcast is done")


def _limit_of(operation: str) -> dict[str, int]:
    """Return the query for the largest page of a route."""
    method, path = operation.split(" ")
    for each in DOCUMENT[path][method.lower()].get("parameters", ()):
        if each["name"] == "limit":
            return {"limit": int(each["schema"].get("maximum", PAGE_MAX))}
    return {}


class Worlds:
    """Creates worlds; all rows that change nothing permanently share one."""

    def __init__(self, stack: Stack, client: httpx.AsyncClient) -> None:
        self._stack = stack
        self._client = client
        self._shared: World | None = None

    async def get(self, name: str) -> World:
        """Return a world for a row."""
        if any(word in name for word in DESTRUCTIVE):
            return await self._create()
        if self._shared is None:
            self._shared = await self._create_full()
        return self._shared

    async def _create(self) -> World:
        world = World(self._stack, self._client, f"c{next(_numbers)}")
        await self._stack.add_users(world.users[role] for role in ROLES)
        await world.create()
        return world

    async def _create_full(self) -> World:
        """Return a world whose owner has chats and messages for full pages."""
        world = await self._create()
        headers = world.headers("owner")
        for other in OTHERS[:CHATS]:
            answer = await self._client.put(f"/v1/direct-chats/{other}", headers=headers)
            assert answer.is_success, answer.text
        for _ in range(MESSAGES):
            await world.send("owner")
        return world


@pytest.mark.timeout(600)
async def test_most_expensive_request_of_each_frame_and_route_is_within_its_bound(
    tmp_path: Path,
) -> None:
    """No request makes more calls to Redis or DynamoDB than its bound."""
    found: dict[str, CallCounts] = {}
    async with open_counted_stack(tmp_path) as (stack, client, calls):
        key = await make_key(stack, *SCOPES)
        worlds = Worlds(stack, client)

        async def check(name: str) -> None:
            for _ in range(ATTEMPTS):
                world = await worlds.get(name)
                if name in frame_matrix.ROWS:
                    counted = await run_frame(stack, world, calls, name)
                else:
                    counted = await run_route(world, calls, client, key, name)
                best = found.get(name, counted)
                found[name] = CallCounts(
                    min(best.redis, counted.redis), min(best.dynamodb, counted.dynamodb)
                )
                if not exceeds(name, found[name]):
                    return

        for name in BOUNDS:
            await check(name)
    for name, counted in found.items():
        print(f"{counted.redis:4} {counted.dynamodb:4}  {name}")  # noqa: T201  # pytest -rP
    assert {
        name: (counted, BOUNDS[name]) for name, counted in found.items() if exceeds(name, counted)
    } == {}
