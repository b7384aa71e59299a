"""User search over HTTP and in the SDK: settings, results and errors."""

from __future__ import annotations

import pytest

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, problem_of
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack

SEARCH = "/v1/user-search"


async def test_discoverable_user_is_found_by_the_sdk(
    stack: Stack, api: Server, caller: Caller, new_name: NewName
) -> None:
    user, word = new_name("ann"), new_name("w").replace("-", "")
    ann = caller(user)
    me = (await ann.patch("/v1/me", json={"name": f"Ann {word}"})).json()
    changed = (await ann.patch("/v1/me", json={"discoverable": True, "about": "Hi"})).json()
    gateway = f"ws://127.0.0.1:{stack.port}/"

    async with ChatClient(gateway, stack.token(new_name("ben")), api_url=api.endpoint) as ben:

        async def is_found() -> bool:
            (found,) = await ben.search_users(f"{word[:8]} an", limit=1) or (None,)
            return found is not None and (found.user, found.name, found.about) == (
                user,
                f"Ann {word}",
                "Hi",
            )

        await eventually(is_found, 20)

    assert (me["discoverable"], changed["discoverable"]) == (False, True)
    assert (await ann.get("/v1/me")).json()["discoverable"] is True


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "q"),
        ({"q": ""}, "q"),
        ({"q": "?!"}, "q"),
        ({"q": "a" * 81}, "q"),
        ({"q": "ann", "limit": 0}, "limit"),
        ({"q": "ann", "limit": 21}, "limit"),
    ],
)
async def test_search_with_invalid_parameter_is_refused_with_its_name(
    caller: Caller, new_name: NewName, params: dict[str, str], field: str
) -> None:
    answer = await caller(new_name("ann")).get(SEARCH, params=params)

    assert problem_of(answer) == (400, "bad_request")
    assert answer.json()["detail"].startswith(field)
