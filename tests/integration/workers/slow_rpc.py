"""An rpc worker whose calls wait until a test lets them continue."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.protocol import frames
from tests.integration.workers.support import with_attributes
from workers.rpc import RpcWorker


class SlowLoader:
    """A stub loader that waits until it is resumed and counts concurrent calls."""

    def __init__(self) -> None:
        self.resume = asyncio.Event()
        self.in_flight = self.most_in_flight = self.done = 0
        self.started: list[UserId] = []

    async def load_user(self, user: UserId) -> None:
        self.started.append(user)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.resume.wait()
            self.done += 1
        finally:
            self.in_flight -= 1

    async def create_chat(self, user: UserId, *_: object, is_host: bool = False) -> frames.ChatInfo:
        await self.load_user(user)
        return frames.ChatInfo("c", "group", [user])


def make_slow_worker(
    container: StorageContainer, loader: SlowLoader, in_flight_max: int = 64
) -> RpcWorker:
    """Return a worker with a stub loader."""
    slow = with_attributes(container, user_loader=cast(Any, loader), chat_creator=cast(Any, loader))
    return RpcWorker(slow, "slow", in_flight_max=in_flight_max)
