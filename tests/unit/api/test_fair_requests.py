"""Users share the request slots of an API process fairly."""

from __future__ import annotations

import asyncio
import gc
from typing import Annotated, Any, cast

import httpx
from litestar import Litestar, Request, get
from litestar.di import NamedDependency, Provide
from litestar.params import QueryParameter

from chatserver.api.authorization import Actor, ReleaseSlots, dependencies
from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.telemetry import metrics


class StubUserLoader:
    """A user loader for which every user is already loaded."""

    async def ensure_loaded(self, user: UserId, *, can_create: bool) -> None:
        """See `chatserver.service.chats.user_loader`."""


def make_check() -> Provide:
    """Return a new dependency that refuses the request if its query says so."""

    async def check(refused: Annotated[bool, QueryParameter()] = False) -> None:
        if refused:
            raise BadRequest("refused: must not be true")

    return Provide(check)


class SlowApi:
    """An API with a slow route for requests and a slow route for sends."""

    def __init__(self, slots: FairSemaphore) -> None:
        self.started: list[str] = []
        self.may_end = asyncio.Event()

        @get("/work", opt={})
        async def work(actor: Actor) -> str:
            return await self._wait(actor)

        # The framework provides these in an order that differs from run to run.
        @get("/page", opt={}, dependencies={name: make_check() for name in "abcdefgh"})
        async def page(
            actor: Actor,
            a: NamedDependency[None],
            b: NamedDependency[None],
            c: NamedDependency[None],
            d: NamedDependency[None],
            e: NamedDependency[None],
            f: NamedDependency[None],
            g: NamedDependency[None],
            h: NamedDependency[None],
        ) -> str:
            return await self._wait(actor)

        @get("/send", opt={"limit": "sends"})
        async def send(actor: Actor) -> str:
            return await self._wait(actor)

        async def before(request: Request[Any, Any, Any]) -> None:
            request.state.principal = Principal("user", UserId(request.headers["x-user"]))

        app = Litestar(
            [work, page, send],
            before_request=before,
            dependencies=dependencies(cast(Any, StubUserLoader()), slots),
            exception_handlers=EXCEPTION_HANDLERS,
            logging_config=None,
            openapi_config=None,
        )
        self.client = httpx.AsyncClient(
            base_url="http://api.example",
            transport=httpx.ASGITransport(ReleaseSlots(app)),  # type: ignore[arg-type]  # it is an ASGI app
        )

    async def _wait(self, actor: UserId) -> str:
        self.started.append(actor)
        await self.may_end.wait()
        return "done"

    def send_request(self, user: str, path: str = "/work") -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self.client.get(path, headers={"X-User": user}))

    async def wait_until_started(self, count: int) -> None:
        """Wait until this number of requests has started."""
        async with asyncio.timeout(10):
            while len(self.started) < count:
                await asyncio.sleep(0)


async def test_requests_of_one_user_leave_slots_for_others() -> None:
    """A user's concurrent requests wait for each other; sends do not use these slots."""
    api = SlowApi(FairSemaphore(total_max=10, user_max=2, waiting_max=3, requests="requests"))
    flood = [api.send_request("busy") for _ in range(6)]
    await api.wait_until_started(2)

    others = [api.send_request("other"), api.send_request("busy", "/send")]
    await api.wait_until_started(4)
    assert sorted(api.started) == ["busy", "busy", "busy", "other"]

    api.may_end.set()
    responses = await asyncio.gather(*flood, *others)
    assert [response.status_code for response in responses].count(429) == 1
    assert [response.status_code for response in responses].count(200) == 7
    (refused,) = [response for response in responses if response.status_code == 429]
    assert refused.json()["code"] == "rate_limited"
    assert refused.headers["retry-after"] == "1"


async def test_request_refused_by_another_dependency_holds_no_slot() -> None:
    """The dependencies of a route are provided together; one of them may refuse the request."""
    api = SlowApi(FairSemaphore(total_max=5, user_max=2, waiting_max=3, requests="requests"))
    api.may_end.set()
    gc.disable()
    try:
        refused = [await api.send_request("user", "/page?refused=true") for _ in range(5)]
        async with asyncio.timeout(10):
            served = await api.send_request("user", "/page")
    finally:
        gc.enable()

    assert [response.status_code for response in refused] == [400] * 5
    assert served.status_code == 200
    assert metrics.SLOTS.labels("requests", "held")._value.get() == 0


async def test_finished_requests_release_their_slots() -> None:
    """Slots are free again after each response."""
    api = SlowApi(FairSemaphore(total_max=1, user_max=1, waiting_max=50, requests="requests"))
    api.may_end.set()

    responses = await asyncio.gather(*(api.send_request(f"u{n % 3}") for n in range(12)))

    assert {response.status_code for response in responses} == {200}
