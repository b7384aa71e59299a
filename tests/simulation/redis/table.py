"""Table of the simulated Redis commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.simulation.redis.keyspace import Keyspace

Function = Callable[[Keyspace, list[bytes]], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command. `needs_memory`: it is refused when Redis is full."""

    name: str
    run: Function
    args_min: int
    is_write: bool
    needs_memory: bool


COMMANDS: dict[bytes, Command] = {}


def command(
    name: str, args_min: int = 1, *, writes: bool = False, grows: bool = False
) -> Callable[[Function], Function]:
    """Register a function as a command. `grows`: it needs memory."""

    def register(function: Function) -> Function:
        entry = Command(name, function, args_min, writes or grows, grows)
        COMMANDS[name.encode()] = COMMANDS[name.lower().encode()] = entry
        return function

    return register
