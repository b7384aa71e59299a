"""The last known state of the Redis servers."""

from __future__ import annotations

from typing import Any

from chatserver.errors import Unavailable
from chatserver.hot.redis.server_health import LOW_SHARE, ServerHealth


class Servers:
    """Two servers; `used` is the memory in use of each, in percent, or None if it is down."""

    def __init__(self, *used: int | None) -> None:
        self.used = dict(zip(("a", "b"), used, strict=True))

    def get_keys(self) -> dict[str, str]:
        return {name: name for name in self.used}

    def send(self, on_reply: Any, *_: Any) -> None:
        on_reply(0)

    async def run(self, _: Any, keys: dict[str, str]) -> tuple[int, int]:
        used = self.used[keys["epoch"]]
        if used is None:
            raise Unavailable("redis: timed out")
        return used, 100


async def test_server_that_does_not_respond_does_not_count_as_empty() -> None:
    """New accounts still wait while the state of the fullest server is unknown."""
    servers = Servers(90, 10)
    health = ServerHealth(servers.get_keys, servers.send, servers.run)
    await health.check()
    assert health.memory_share == 0.9 >= LOW_SHARE

    servers.used["a"] = None
    await health.check()
    assert health.is_low_on_memory

    servers.used["a"] = 20
    await health.check()
    assert not health.is_low_on_memory
