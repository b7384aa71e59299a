"""Runs Lua scripts in this process, on fakeredis, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import fakeredis

from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.scripts import Value, load_script

START_MS = 1_800_000_000_000


class Clock:
    """The clock of the fake Redis. It only moves when a test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def time(self) -> float:
        """Return seconds since 1970, as `time.time` does."""
        return self.now_ms / 1000

    def advance_ms(self, ms: int) -> None:
        """Move the clock; a negative number sets it back."""
        self.now_ms += ms


class ScriptRunner:
    """Runs scripts on an empty fake Redis with one partition.

    Scripts that use the library `struct` cannot run: fakeredis does not have it.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.keys = Keys(1)
        # Any, because replies are typed for both the sync and the async client
        self.redis: Any = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)

    def run(
        self,
        script_name: str,
        keys: Mapping[str, Value] | None = None,
        args: Mapping[str, Value] | None = None,
        items: Iterable[Mapping[str, Value]] = (),
    ) -> Any:
        """Run a script with the names of its header."""
        script = load_script(script_name)
        key_list, arg_list = script.bind(keys, args, items)
        flags, _, source = script.source.partition("\n")
        assert flags.startswith("#!lua")  # fakeredis does not parse this line
        return self.redis.eval(source, len(key_list), *key_list, *arg_list)

    def hold_lease(self, token: int) -> None:
        """Give the lease on `persist` to a holder with this fencing token."""
        self.redis.hset(self.keys.lease(0, "persist"), "token", token)

    def lease(self) -> str:
        """Return the key of that lease."""
        return self.keys.lease(0, "persist")

    def entry_ids(self, stream: str) -> list[str]:
        """Return the entry ids of a stream."""
        return [entry for entry, _ in self.redis.xrange(stream)]
