"""The HTTP API of the simulated cluster: the product's ASGI application, and its client.

The HTTP server is not simulated. A request arrives at the application after a delay, runs in the
API's process, and its response arrives after another delay. If the process ends meanwhile, the
client sees a lost connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from chatserver.api.app import create_app, finish
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from tests.simulation.network import DELAY_S
from tests.simulation.process import make_context

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster, Member

TIMEOUT_S = 20.0
RETRY_S = 0.5
_TEMPORARY = frozenset({429, 503})


class Refused(Exception):
    """The API refused a request permanently."""


class Application:
    """The application in one API process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._app: Any = None  # of Litestar, called with plain dicts as an ASGI application

    async def run(self, member: Member) -> None:
        """Run the application until its process is stopped."""
        clock = SystemClock()
        settings = self._cluster.settings
        async with open_storage_container(role="api", settings=settings, clock=clock) as container:
            self._app = create_app(settings, clock, container)
            tasks = [
                asyncio.create_task(container.limits.run(), name="limits"),
                asyncio.create_task(container.stored_waits.run(container.chat_log), name="stored"),
            ]
            member.is_ready = True
            await member.stop.wait()
            member.is_ready = False
            await finish(container)
            for task in tasks:
                task.cancel()

    async def handle(self, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        """Return the status and body of a response."""
        status, parts = 0, list[bytes]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(parts)


class ApiClient:
    """A client of the API, for one caller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def request(self, method: str, path: str, token: str, **body: Any) -> Any:
        """Repeat a request until it has a response. `body` and the result are any JSON.

        Raises:
            Refused: the API refused it.
        """
        content = msgspec.json.encode(body) if body else b""
        headers = [
            (b"host", b"api.simulated"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"authorization", b"Bearer " + token.encode()),
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("10.0.0.3", 20_000),
            "server": ("10.0.0.1", 8080),
        }
        while True:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    status, payload = await self._exchange(scope, content)
            except (OSError, TimeoutError):
                status, payload = 503, b""
            if status < 300:
                return msgspec.json.decode(payload) if payload else None
            if status not in _TEMPORARY:
                raise Refused(f"{method} {path}: {status} {payload.decode()}")
            await asyncio.sleep(RETRY_S)

    async def _exchange(self, scope: dict[str, Any], content: bytes) -> tuple[int, bytes]:
        loop = self._cluster.loop
        await asyncio.sleep(loop.rng.uniform(*DELAY_S))
        (member,) = self._cluster.of_kind("api")
        process, application = member.process, self._cluster.application
        if process.is_dead or not member.is_ready:
            raise ConnectionRefusedError
        response: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def fail() -> None:
            if not response.done():
                response.set_exception(ConnectionResetError())

        def complete(task: asyncio.Task[tuple[int, bytes]]) -> None:
            if response.done() or task.cancelled():
                return
            if (error := task.exception()) is not None:
                loop.failures.append((process, f"{scope['path']}: {error!r}"))
                fail()
            else:
                response.set_result(task.result())

        process.on_death.append(fail)
        handling = application.handle({**scope, "state": {}}, content)
        task = loop.create_task(handling, context=make_context(process), name="request")
        process.remains.append(task)
        task.add_done_callback(complete)
        try:
            result = await response
        finally:
            process.on_death.remove(fail)
            process.remains.remove(task)
        await asyncio.sleep(loop.rng.uniform(*DELAY_S))
        return result
