"""Cancellation of requests whose client has gone, for work that is too expensive to waste."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request

from chatserver.errors import BadRequest

T = TypeVar("T")


async def run_while_connected(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result; cancel it as soon as the client disconnects.

    The body of the request has to be read already.

    Raises:
        BadRequest: the client disconnected; nobody receives this answer.
    """
    task = asyncio.create_task(work, name="while-connected")
    watcher = asyncio.create_task(_wait_for_disconnect(request), name="disconnect")
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise BadRequest("the client closed the connection")
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _wait_for_disconnect(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
