"""Exceptions of shared work are not logged as never retrieved if its callers are cancelled."""

from __future__ import annotations

import ast
import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from chatserver.domain.ids import ChatId
from chatserver.errors import Unavailable
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.task_groups import wait_for_shared

ROOT = Path(__file__).parents[2]
# Futures without an exception, and one whose exception is retrieved where it is set.
SHIELDED = {
    "chatserver/task_groups.py": 1,
    "chatserver/gateway/transport/connection.py": 1,
    "chatserver/hot/redis/cluster.py": 1,
    "chatserver/hot/redis/single_server.py": 1,
    "chatserver/client/client.py": 1,
}


class BrokenHot:
    """A Redis that never responds, and then fails."""

    def __init__(self) -> None:
        self.on_epoch: list[Any] = []
        self.keys = self
        self.may_fail = asyncio.Event()

    def get_partition(self, name: str) -> int:
        """See `Keys`."""
        return 0

    def get_epoch(self, partition: int) -> int:
        """See `HotClient`."""
        return 1

    def chat(self, chat: str) -> str:
        """See `Keys`."""
        return chat

    members = chat

    async def snapshot(self, *commands: object) -> Any:
        """See `HotClient`."""
        await self.may_fail.wait()
        raise Unavailable("redis: the connection was closed")


def record_errors() -> list[str]:
    """Record what asyncio reports instead of raising it."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(context["message"])
    )
    return reported


async def test_failed_load_without_callers_is_not_reported_as_unretrieved() -> None:
    """All callers of a load have disconnected when it fails, for example without an rpc worker."""
    reported, hot = record_errors(), BrokenHot()
    audiences = Audiences(hot, lambda _chat: asyncio.sleep(0))  # type: ignore[arg-type]  # a fake
    callers = [asyncio.create_task(audiences.get(ChatId("c"))) for _ in range(2)]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    del caller, callers  # their tracebacks refer to the load

    hot.may_fail.set()
    async with asyncio.timeout(10):
        while audiences._loading:
            await asyncio.sleep(0)
    gc.collect()

    assert reported == []


async def test_caller_of_shared_work_gets_its_exception() -> None:
    """Retrieving the exception does not hide it from those who wait."""
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(wait_for_shared(work)) for _ in range(2)]
    await asyncio.sleep(0)

    work.set_exception(Unavailable("away"))

    for caller in waiting:
        with pytest.raises(Unavailable):
            await caller


def test_shared_work_is_awaited_in_one_way() -> None:
    """`asyncio.shield` alone loses the exception of work whose caller is cancelled."""
    found: dict[str, int] = {}
    for folder in ("chatserver", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            if "shield(" in text:
                calls = [
                    node
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.shield"
                ]
                found[str(path.relative_to(ROOT))] = len(calls)

    assert found == SHIELDED
