"""Cancellation of expensive requests whose client has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request

from chatserver.errors import BadRequest

T = TypeVar("T")


async def run_while_connected(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result; cancel it as soon as the client disconnects.

    The request body must already have been read.

    Raises:
        BadRequest: the client disconnected, so the response is not delivered.
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
