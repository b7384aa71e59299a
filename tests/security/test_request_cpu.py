"""CPU time on the event loop for the dearest input of each frame and route.

A frame or a route without a row fails. The requests are those of the authorization matrices, made
as expensive by `DEAREST` as the protocol allows, from a user with full lists. There are two bounds
on the process whose event loop a request uses most (gateway, API, `worker rpc`, `worker search`):
one on its longest tick, during which other requests wait, and one on all of its ticks together.
Routes of resources that no row creates (companions, files) are only measured up to their 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import pytest

from chatserver.auth.api_keys import SCOPES
from chatserver.features.accounts.search_words import WORDS_MAX
from chatserver.features.accounts.warm.search_entries import PARTS, READ_MAX, encode_entry
from chatserver.features.chat_preferences.model import PINNED_CHATS_MAX
from chatserver.protocol.frames import PAGE_MAX
from chatserver.requests.registry import list_operations
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.tables import DIRECTORY
from tests.security import test_authorization_frames as frame_matrix
from tests.security import test_authorization_http as http_matrix
from tests.security.support.access_matrix import ROLES, Kind, Row, World
from tests.security.support.dearest_inputs import DEAREST, OTHERS, WIDE, WORDS, Dearest
from tests.security.support.loop_meter import LoopMeter, LoopTime
from tests.security.support.request_bounds import BOUNDS, get_loop_bounds, render_table
from tests.security.support.users import make_key
from tests.security.test_request_calls import (
    DESTRUCTIVE,
    NO_RESPONSE,
    _limit_of,
    wait_for_broadcast,
)
from tests.support.loop_ticks import FOLDER, TickReader
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, Stack, start_async
from tests.support.wire import RawSocket

T = TypeVar("T")
RUNS_MAX = 6
_numbers = itertools.count()
NO_INPUT = Dearest("")
FULL = 200  # items of each list
BLOCKED = [f"blocked-{number}" for number in range(FULL)]
NAMED = PARTS * READ_MAX


@contextlib.asynccontextmanager
async def open_full_stack(folder: Path) -> AsyncIterator[tuple[Stack, httpx.AsyncClient]]:
    """Start a gateway, an API and the workers that answer requests, with a search index."""
    env = {
        **PATIENT,
        "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
        "chatserver.auth.passwords.ARGON2_PASSES": "1",
        "CHAT_LIMITS_ENTRIES": "0.5/s burst 100000",
        "CHAT_LIMITS_LOGINS": "0.05/s burst 1000",
        "CHAT_SEARCH_INDEX": str(folder / "index"),
        "CHAT_COLD_ENDPOINT": "http://127.0.0.1:9",
        "CHAT_COLD_ACCESS_KEY": "none",
        "CHAT_COLD_SECRET_KEY": "none",
        FOLDER: str(folder),
    }
    stack = Stack(folder, "no", env)
    try:
        stack.start_servers()
        api = stack.add_api()
        await asyncio.gather(
            *map(
                start_async,
                (
                    stack.add_worker("rpc"),
                    stack.add_worker("persist", "repair", "counters", "timeline"),
                    stack.add_worker("search"),
                    stack.add_gateway(),
                    api,
                ),
            )
        )
        await stack.add_users([*OTHERS, *BLOCKED])
        async with httpx.AsyncClient(base_url=api.endpoint, timeout=60) as client:
            yield stack, client
    finally:
        stack.stop()


def make_meter(stack: Stack) -> LoopMeter:
    servers = {
        "gateway": stack.gateways[0],
        "api": stack.apis[0],
        "rpc": stack.workers["rpc"],
        "search": stack.workers["search"],
    }
    return LoopMeter(
        {
            name: TickReader(stack.folder, server.process.pid)
            for name, server in servers.items()
            if server.process
        }
    )


class FullWorld:
    """Groups of an owner whose lists are full: `short` and `long` have texts of these lengths."""

    def __init__(self, stack: Stack, client: httpx.AsyncClient, key: str) -> None:
        self._stack = stack
        self._client = client
        self.key = key
        self.short = World(stack, client, f"c{next(_numbers)}")
        self.long = copy.copy(self.short)
        self.pinned: list[str] = []

    async def fill(self) -> None:
        """Create the data."""
        await self._stack.add_users(self.short.users[role] for role in ROLES)
        await self.short.create()
        self.long = copy.copy(self.short)
        await self.long.create()
        owner = self.short.users["owner"]
        long = [*[WIDE] * (FULL // 2), *[WORDS] * (FULL // 2)]
        first = await self._send_all(self.long.chat, long)
        await self._send_all(self.short.chat, [f"short {number}" for number in range(FULL)])
        await self._put_all("/v1/direct-chats/{}", OTHERS[:FULL])
        await self._put_all("/v1/me/blocks/{}", BLOCKED)
        await self._put_all("/v1/me/following/{}", OTHERS[:FULL])
        await self._put_all(f"/v1/me/following/{owner}", OTHERS[:FULL], is_by_each=True)
        chats = await self._list_chats()
        self.pinned = chats[:PINNED_CHATS_MAX]
        draft = {"draft": {"text": WIDE, "version": 1}}
        await self._all(
            self._send("PATCH", f"/v1/chats/{chat}/preferences", draft) for chat in chats[:FULL]
        )
        await self._all(
            self._send("POST", "/v1/me/posts", {"content": WIDE[:1500]}) for _ in range(FULL)
        )
        await self._all(
            self._send("PUT", f"/v1/me/favorites/messages/{self.long.chat}/{first + number}")
            for number in range(FULL // 2)
        )
        await self._all(
            self._send(
                "PUT",
                f"/v1/chats/{self.long.chat}/messages/{first + number}/report",
                {"reason": WIDE[:375]},
            )
            for number in range(FULL // 2)
        )
        await self._name_users()
        await eventually(self._is_indexed, 120, "the messages are indexed")

    async def _is_indexed(self) -> bool:
        answer = await self._client.get(
            "/v1/search", params={"q": "a", "limit": 50}, headers=self.short.headers("owner")
        )
        return len(answer.json().get("items", ())) >= 10  # pages have at most 256 KB

    async def _list_chats(self) -> list[str]:
        answer = await self._send("GET", f"/v1/chats?limit={PAGE_MAX}")
        return [each["chat"] for each in answer.json()["items"]]

    async def _name_users(self) -> None:
        """Give `NAMED` users the same search words."""
        words = tuple(letter * 16 for letter in "efghijkl")[:WORDS_MAX]
        table = DIRECTORY.name_in(self._stack.warm)
        async with open_dynamodb(self._stack.warm) as dynamodb:
            items = [
                encode_entry(words[0], f"named-{number}", words) for number in range(2 * NAMED)
            ]
            for start in range(0, len(items), 25):
                puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
                await dynamodb.call("batch_write_item", {"RequestItems": {table: puts}})

    async def _send(self, method: str, path: str, json: Any = None) -> httpx.Response:
        answer = await self._client.request(
            method, path, json=json, headers=self.short.headers("owner")
        )
        assert answer.is_success, (method, path, answer.text)
        return answer

    async def _send_all(self, chat: str, texts: Iterable[str]) -> int:
        """Send messages; return the seq of the first."""
        answers = [
            await self._send("POST", f"/v1/chats/{chat}/messages", {"body": text}) for text in texts
        ]
        first: int = answers[0].json()["seq"]
        return first

    async def _put_all(self, path: str, users: Iterable[str], *, is_by_each: bool = False) -> None:
        async def put(user: str) -> None:
            headers = self.short.headers("owner")
            if is_by_each:
                headers = {"Authorization": f"Bearer {self._stack.token(user)}"}
            answer = await self._client.put(path.format(user), headers=headers)
            assert answer.is_success, (path, answer.text)

        await self._all(put(user) for user in users)

    async def _all(self, requests: Iterable[Awaitable[Any]]) -> None:
        for batch in _split(requests, 4):
            await asyncio.gather(*batch)


def _split(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


async def run_frame(
    stack: Stack, full: FullWorld, world: World, meter: LoopMeter, tag: str
) -> LoopTime:
    """Send the dearest frame of a type as a group owner; return its CPU time."""
    row, dearest = frame_matrix.ROWS[tag], DEAREST.get(tag, NO_INPUT)
    seq = await world.send("owner")
    fields = world.fill(row.fields or {}, seq) | dict(dearest.fields)
    if "ref" in fields:
        fields["ref"] = f"{tag}-{next(_numbers)}"
    if "limit" in list_fields(tag):
        fields.setdefault("limit", PAGE_MAX)
    owner = world.users["owner"]
    if tag == "hello":
        return await _run_hello(stack, owner, meter, fields)
    if tag == "auth":
        fields["token"] = stack.token(owner)
    async with stack.chat_of(owner) as device:
        used, _ = await meter.measure(_send_frame(device, tag, fields, row))
    return used


def list_fields(tag: str) -> set[str]:
    """Return the names of the fields of a frame."""
    for each in list_operations():
        info: Any = msgspec.inspect.type_info(each)
        if info.tag == tag:
            return {field.name for field in info.fields}
    raise AssertionError(tag)


async def _run_hello(stack: Stack, user: str, meter: LoopMeter, fields: dict[str, Any]) -> LoopTime:
    ws = await RawSocket.open(stack.port)
    hello = {"type": "hello", **fields, "token": stack.token(user), "device": "dearest"}

    async def send() -> None:
        await ws.send_json(hello)
        welcome = await ws.recv_json()
        assert welcome["type"] == "welcome", welcome

    try:
        used, _ = await meter.measure(send())
    finally:
        await ws.close()
    return used


async def _send_frame(device: RawChat, tag: str, fields: dict[str, Any], row: Row) -> None:
    if tag in NO_RESPONSE:
        await device.send_frame(tag, **fields)
        return
    if row.but.get("owner", row.ok) in ("bad_request", "not_found") and tag not in DEAREST:
        with pytest.raises(frame_matrix.Failed):
            await device.request(tag, **fields)
        return
    with contextlib.suppress(Failed):
        await device.request(tag, **fields)


async def run_route(
    client: httpx.AsyncClient, full: FullWorld, world: World, meter: LoopMeter, operation: str
) -> LoopTime:
    """Send the dearest request of a route as a group owner; return its CPU time."""
    row, dearest = http_matrix.ROWS[operation], DEAREST.get(operation, NO_INPUT)
    seq = world.own_seq if row.kind is not Kind.SENDER else await world.send("owner")
    fields = dict(dearest.fields)
    if operation == "PUT /v1/me/pinned-chats":
        fields["chats"] = full.pinned
    if fields:
        row = Row(row.kind, row.ok, {**(row.fields or {}), **fields}, row.but)
    headers = world.headers("owner")
    if http_matrix.scope_of(operation) is not None and row.kind is Kind.APPLICATION:
        headers = {"Authorization": f"Bearer {full.key}", "X-Chat-As": world.users["owner"]}
    reader = copy.copy(world)
    if operation.startswith("GET /v1/users/") or operation.startswith("GET /v1/admin/users/"):
        reader.users = {**world.users, "bystander": world.users["owner"]}
    client.params = httpx.QueryParams({**_limit_of(operation), **dearest.query})
    try:
        used, answer = await meter.measure(
            http_matrix.request(client, operation, row, reader, seq, headers)
        )
    finally:
        client.params = httpx.QueryParams()
    assert answer.status_code < 500 or operation in ("PUT /v1/chats/{chat}/pins/{seq}",), (
        answer.text
    )
    if dearest.fields or dearest.query:
        assert answer.is_success, (operation, answer.status_code, answer.text)
    if operation == "POST /v1/admin/broadcasts":
        await wait_for_broadcast(client, answer.json()["broadcast"], headers)
    return used


def test_every_dearest_input_is_of_a_frame_or_route() -> None:
    """An input of a frame that was renamed would not be measured."""
    assert set(DEAREST) <= set(BOUNDS)


def test_document_lists_the_dearest_requests() -> None:
    """The table of docs/limits.md is rendered from the measurements."""
    assert render_table() in (http_matrix.DOCUMENT.parent / "limits.md").read_text("utf-8")


@pytest.mark.timeout(1800)
async def test_dearest_input_of_each_frame_and_route_stays_within_its_bounds(
    tmp_path: Path,
) -> None:
    """The CPU time is the minimum of several requests, because of caches and garbage collection."""
    found: dict[str, LoopTime] = {}
    async with open_full_stack(tmp_path) as (stack, client):
        key = await make_key(stack, *SCOPES)
        full = FullWorld(stack, client, key)
        await full.fill()
        meter = make_meter(stack)

        async def check(name: str, run: Callable[[World], Awaitable[LoopTime]]) -> None:
            worlds = [full.short, full.long]
            if any(word in name for word in DESTRUCTIVE):
                worlds = []
            best: dict[int, LoopTime] = {}
            bounds = get_loop_bounds(name)
            for number in range(RUNS_MAX):
                if worlds:
                    world = worlds[number % 2]
                else:
                    world = World(stack, client, f"d{next(_numbers)}")
                    await stack.add_users(world.users[role] for role in ROLES)
                    await world.create()
                used = await run(world)
                kind = number % 2 if worlds else 0
                best[kind] = LoopTime(*map(min, best.get(kind, used), used))
                highest = LoopTime(*map(max, *best.values(), (0, 0)))
                is_done = all(used < bound / 2 for used, bound in zip(highest, bounds, strict=True))
                if len(best) >= min(2, len(worlds) or 1) and is_done:
                    break
            found[name] = highest
            print(f'    "{name}": {highest.tick_ms:.1f}, {highest.total_ms:.1f}', flush=True)  # noqa: T201  # pytest -rP

        for tag in frame_matrix.ROWS:
            await check(tag, lambda world, tag=tag: run_frame(stack, full, world, meter, tag))  # type: ignore[misc]
        for operation in http_matrix.ROWS:
            await check(
                operation,
                lambda world, operation=operation: run_route(client, full, world, meter, operation),  # type: ignore[misc]
            )

    too_slow = {
        name: (used, get_loop_bounds(name))
        for name, used in found.items()
        if any(ms >= bound for ms, bound in zip(used, get_loop_bounds(name), strict=True))
    }
    assert too_slow == {}
