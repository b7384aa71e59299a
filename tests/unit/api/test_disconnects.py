"""Tests of chatserver.api.disconnects."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from litestar import Request

from chatserver.api.disconnects import run_while_connected
from chatserver.auth.password_queue import PasswordQueue
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, RateLimited


class Client:
    """A client that sends nothing until the test disconnects it."""

    def __init__(self) -> None:
        self._disconnected = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    def disconnect(self) -> None:
        self._disconnected.set()

    @property
    def request(self) -> Request[Any, Any, Any]:
        """Return this client as a request."""
        return cast("Request[Any, Any, Any]", self)


async def test_login_of_disconnected_client_leaves_the_queue() -> None:
    """A waiting login ends when its client disconnects, and never gets a slot."""
    queue, client, hashed = PasswordQueue(1, 100.0, lambda: 0.0), Client(), list[str]()
    attempt = LoginAttempt(UserId("zoe"), "net", is_known=False)

    async def log_in() -> None:
        async with queue.acquire_slot(attempt):
            hashed.append("zoe")

    async with queue.acquire_slot(attempt):
        task = asyncio.create_task(run_while_connected(client.request, log_in()))
        async with asyncio.timeout(30):
            while queue.waiting_count != 1:
                await asyncio.sleep(0)
        client.disconnect()
        with pytest.raises(BadRequest):
            await task
        assert queue.waiting_count == 0

    async with queue.acquire_slot(attempt):
        assert hashed == []


async def test_result_and_error_reach_a_connected_client() -> None:
    """The result or the error is passed on, and no task is left running."""
    before = asyncio.all_tasks()

    async def succeed() -> int:
        return 7

    async def fail() -> int:
        raise RateLimited("too many")

    assert await run_while_connected(Client().request, succeed()) == 7
    with pytest.raises(RateLimited):
        await run_while_connected(Client().request, fail())
    assert asyncio.all_tasks() == before
