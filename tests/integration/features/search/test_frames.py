"""Search over WebSocket, in the SDK and in the terminal returns the same results as over HTTP."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from chatserver.client.client import ChatClient
from chatserver.features.search.frames import Search
from chatserver.protocol.request_costs import SEARCH, compute_route_cost
from chatserver.requests.registry import compute_frame_cost
from tests.integration.features.privacy.support import Person
from tests.integration.features.search.support import (
    NewPerson,
    SearchStack,
    make_group,
    search,
    wait_for_results,
)
from tests.support.deadlines import wait_for_exit
from tests.support.fork_server import CLI
from tests.support.rawchat import get_refusal

pytestmark = pytest.mark.asyncio(loop_scope="session")
TERMINAL_S = 60.0
ROUTE = ("GET", "/v1/search")


async def send_search(search_stack: SearchStack, person: Person, **fields: Any) -> dict[str, Any]:
    async with search_stack.vault.stack.chat_of(person.user) as device:
        return await device.request("search", **fields)


async def test_search_over_the_socket_has_the_results_of_http(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The cursors are also the same, so a list can be continued over the other interface."""
    ann, ben, eve = await new_person("ann"), await new_person("ben"), await new_person("eve")
    chat = await make_group(ann, ben.user)
    for n in range(5):
        await ann.send(chat, f"lychee number {n}")
    await wait_for_results(ben, "lychee", 5)

    first = await send_search(search_stack, ben, q="lychee", limit=2)
    over_http = await search(ben, "lychee", limit=2)
    rest = await send_search(search_stack, ben, q="lychee", limit=2, after=over_http["next"])
    last = await search(ben, "lychee", limit=2, cursor=rest["next"])

    assert first["results"] == over_http["items"]
    assert (first["more"], first["next"]) == (True, over_http["next"])
    bodies = [each["message"]["body"] for each in (*first["results"], *rest["results"])]
    assert bodies == [f"lychee number {n}" for n in (4, 3, 2, 1)]
    assert [each["message"]["body"] for each in last["items"]] == ["lychee number 0"]
    assert (await send_search(search_stack, eve, q="lychee"))["results"] == []


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"q": "x" * 501}, "bad_request", "length <= 500"),
        ({"q": ""}, "bad_request", "length >= 1"),
        ({"q": "x", "limit": 51}, "bad_request", "<= 50"),
        ({"q": "x", "order": "best"}, "bad_request", "order"),
        ({"q": "has:x"}, "bad_request", "has:"),
        ({"q": "x", "after": "made-up"}, "bad_request", "cursor"),
        ({"q": "in:g-none x"}, "not_found", ""),
    ],
)
async def test_invalid_search_frame_is_refused(
    search_stack: SearchStack, new_person: NewPerson, fields: dict[str, Any], code: str, text: str
) -> None:
    """The limits are those of HTTP, and the error names the field."""
    ann = await new_person("ann")

    refused = await get_refusal(send_search(search_stack, ann, **fields))

    assert refused.code == code
    assert text in str(refused)


async def test_search_cursor_of_another_user_or_query_is_refused(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """A cursor is valid only for its query, order and user."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for n in range(3):
        await ann.send(chat, f"durian {n}")
    await wait_for_results(ann, "durian", 3)
    cursor = (await send_search(search_stack, ann, q="durian", limit=1))["next"]

    for person, fields in ((ben, {}), (ann, {"order": "relevance"}), (ann, {"q": "durian 1"})):
        refused = await get_refusal(
            send_search(search_stack, person, **{"q": "durian", "after": cursor, **fields})
        )
        assert refused.code == "bad_request"


async def test_search_costs_ten_tokens() -> None:
    """A page of 50 costs one more, over both interfaces."""
    for cost in (compute_frame_cost(Search(1, "x")), compute_route_cost(*ROUTE, None)):
        assert cost == SEARCH == 10
    large = Search(1, "x", limit=50)
    assert compute_frame_cost(large) == compute_route_cost(*ROUTE, "50") == SEARCH + 1


@pytest.mark.parametrize("interface", ["socket", "http"])
async def test_sdk_searches_over_both_interfaces(
    search_stack: SearchStack, new_person: NewPerson, interface: str
) -> None:
    """A connected client needs no `api_url`; without a connection, it uses the HTTP API."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for n in range(3):
        await ann.send(chat, f"guava {n}")
    await wait_for_results(ben, "guava", 3)
    vault, query = search_stack.vault, "guava from:" + ann.user

    async def find(client: ChatClient) -> list[Any]:
        first = await client.search(query, limit=2)
        return [first, await client.search(query, limit=2, after=first.next)]

    if interface == "socket":
        async with ChatClient(f"ws://127.0.0.1:{vault.stack.port}/", ben.token) as client:
            first, rest = await find(client)
    else:
        http = ChatClient("ws://127.0.0.1:9/", ben.token, api_url=vault.api.endpoint)
        first, rest = await find(http)

    assert [each.message.body for each in first.results] == ["guava 2", "guava 1"]
    assert first.results[0].snippet == [("guava", True), (" 2", False)]
    assert [each.message.body for each in rest.results] == ["guava 0"]
    assert rest.next is None


async def test_terminal_shows_the_newest_results(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """`/search` prints at most ten results and sends no message."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat, group = await ann.open_direct(ben.user), await make_group(ann, ben.user, name="Fruit")
    await ann.send(group, "rambutan in the group")
    for n in range(11):
        await ann.send(chat, f"rambutan {n}")
    await wait_for_results(ben, "rambutan", 12)
    stack = search_stack.vault.stack
    process = await asyncio.create_subprocess_exec(
        *(*CLI, "chat", "--with", ann.user, "--url", f"ws://127.0.0.1:{stack.port}/"),
        env={**os.environ, **stack.environment(), "CHAT_TOKEN": ben.token},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    try:
        in_group = await search_in_terminal(process, f"rambutan in:{group}", 1)
        everywhere = await search_in_terminal(process, "rambutan", 10)
        wrong = await search_in_terminal(process, "has:x", 0)
    finally:
        process.kill()
        await wait_for_exit(process)

    assert in_group[0] == f"[search rambutan in:{group}: 1 message]"
    assert in_group[1].endswith(f"{ann.user}: rambutan in the group")
    assert everywhere[0] == "[search rambutan: 10 messages, there are more]"
    assert everywhere[1].endswith(f"{ann.user}: rambutan 10")
    assert "has:file" in wrong[0]
    assert (await search(ann, "search rambutan"))["items"] == []  # no message was sent


async def search_in_terminal(
    process: asyncio.subprocess.Process, query: str, count: int
) -> list[str]:
    """Enter a search; return its heading and `count` results."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"/search {query}\n".encode())
    found: list[str] = []
    async with asyncio.timeout(TERMINAL_S):
        while len(found) < 1 + count:
            line = (await process.stdout.readline()).decode().rstrip()
            assert line, "the terminal client has ended"
            if line.startswith("["):
                found.append(line)
    return found


async def test_search_without_a_worker_is_unavailable(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The error names the missing worker. When it has started, a search succeeds."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    await ann.send(chat, "salak one")
    await wait_for_results(ann, "salak")
    search_stack.stop_indexer()

    refused = await get_refusal(send_search(search_stack, ann, q="salak"))
    search_stack.start_indexer()

    assert refused.code == "unavailable"
    assert "chatserver worker search" in str(refused)
    assert len((await send_search(search_stack, ann, q="salak"))["results"]) == 1
