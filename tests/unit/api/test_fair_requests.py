"""Requests of users share an API process fairly."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
from litestar import Litestar, Request, get

from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.api.security import Actor, dependencies
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import UserId
from chatserver.service.fair_semaphore import FairSemaphore


class Arrivals:
    """Everybody is known."""

    async def ensure_loaded(self, user: UserId, *, is_vouched: bool) -> None:
        """See `chatserver.service.chats.user_loader`."""


class World:
    """An API with one slow route for work, and one for sends."""

    def __init__(self, slots: FairSemaphore) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

        @get("/work", opt={})
        async def work(actor: Actor) -> str:
            return await self._wait(actor)

        @get("/send", opt={"limit": "sends"})
        async def send(actor: Actor) -> str:
            return await self._wait(actor)

        async def before(request: Request[Any, Any, Any]) -> None:
            request.state.principal = Principal("user", UserId(request.headers["x-user"]))

        app = Litestar(
            [work, send],
            before_request=before,
            dependencies=dependencies(cast(Any, Arrivals()), slots),
            exception_handlers=EXCEPTION_HANDLERS,
            logging_config=None,
            openapi_config=None,
        )
        self.client = httpx.AsyncClient(
            base_url="http://api.example",
            transport=httpx.ASGITransport(app),  # type: ignore[arg-type]  # ASGI all the same
        )

    async def _wait(self, actor: UserId) -> str:
        self.begun.append(actor)
        await self.may_end.wait()
        return "done"

    def ask(self, user: str, path: str = "/work") -> asyncio.Task[httpx.Response]:
        """Make a request."""
        return asyncio.create_task(self.client.get(path, headers={"X-User": user}))

    async def until_begun(self, count: int) -> None:
        """Wait until so many requests are worked on."""
        async with asyncio.timeout(10):
            while len(self.begun) < count:
                await asyncio.sleep(0)


async def test_requests_of_one_user_leave_room_for_others() -> None:
    """A user with many concurrent requests waits for their own requests; sends are not counted."""
    world = World(FairSemaphore(total_max=10, user_max=2, waiting_max=3, requests="requests"))
    flood = [world.ask("busy") for _ in range(6)]
    await world.until_begun(2)

    others = [world.ask("other"), world.ask("busy", "/send")]
    await world.until_begun(4)
    assert sorted(world.begun) == ["busy", "busy", "busy", "other"]

    world.may_end.set()
    answers = await asyncio.gather(*flood, *others)
    assert [answer.status_code for answer in answers].count(429) == 1
    assert [answer.status_code for answer in answers].count(200) == 7
    (refused,) = [answer for answer in answers if answer.status_code == 429]
    assert refused.json()["code"] == "rate_limited"
    assert refused.headers["retry-after"] == "1"


async def test_requests_that_fail_or_end_give_their_slots_back() -> None:
    """Slots are free again after each answer."""
    world = World(FairSemaphore(total_max=1, user_max=1, waiting_max=50, requests="requests"))
    world.may_end.set()

    answers = await asyncio.gather(*(world.ask(f"u{n % 3}") for n in range(12)))

    assert {answer.status_code for answer in answers} == {200}
