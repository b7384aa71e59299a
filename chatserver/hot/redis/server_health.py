"""Checks that the Redis servers accept writes, and reads how much of their memory is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import structlog

from chatserver.errors import ChatError, Unavailable
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.replies import translate_reply_error
from chatserver.hot.redis.scripts import load_script

log = structlog.get_logger()

# Shares of `maxmemory`; see `ServerHealth.is_under_memory_pressure` and `is_low_on_memory`.
PRESSURE_SHARE = 0.70
LOW_SHARE = 0.85


@attrs.define(eq=False, repr=False)
class ServerHealth:
    """The last known state of the servers, read by `check`.

    `get_keys_by_server` returns one existing key for each connected server. `send` and `run` are
    those of `HotClient`.
    """

    _get_keys_by_server: Callable[[], dict[str, str]]
    _send: Callable[..., None]
    _run: Callable[..., Awaitable[Any]]
    # Server → reason, for servers that respond but refuse writes (for example: disk full).
    refusals: dict[str, str] = attrs.field(factory=dict, init=False)
    refusal: str = attrs.field(
        default="", init=False
    )  # if all servers refuse writes: the first reason, for probes
    # `used_memory` / `maxmemory` of the fullest server; 0 while unknown or without `maxmemory`.
    memory_share: float = attrs.field(default=0.0, init=False)

    @property
    def is_under_memory_pressure(self) -> bool:
        """True if data that the warm tier has should leave Redis early."""
        return self.memory_share >= PRESSURE_SHARE

    @property
    def is_low_on_memory(self) -> bool:
        """True if requests of new accounts, and new accounts, are refused."""
        return self.memory_share >= LOW_SHARE

    @property
    def refusal_error(self) -> Unavailable | None:
        """The error for probes if all servers refuse writes."""
        return Unavailable(str(self.refusals), public=self.refusal) if self.refusal else None

    async def check(self) -> None:
        """Ask all servers."""
        await asyncio.gather(self._check_writes(), self._check_memory())

    async def _check_writes(self) -> None:
        keys, before = self._get_keys_by_server(), self.refusals
        refusals = await asyncio.gather(*map(self._find_refusal, keys.values()))
        found = {name: error for name, error in zip(keys, refusals, strict=True) if error}
        self.refusals = {name: error.message for name, error in found.items()}
        is_refused = bool(keys) and len(found) == len(keys)
        self.refusal = next(iter(found.values())).probe_message if is_refused else ""
        for name in self.refusals.keys() - before.keys():
            log.error("hot.writes_refused", redis=name, error=self.refusals[name])
        for name in before.keys() - self.refusals.keys():
            log.info("hot.writes_resumed", redis=name)

    async def _find_refusal(self, key: str) -> ChatError | None:
        """Return why Redis refuses writes; None if it accepts them or does not respond.

        The test write changes no data.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(response: Reply) -> None:
            if not reply.done():
                reply.set_result(response)

        self._send(on_reply, "SETRANGE", f"{key}:probe", 0, "")
        refusal = await reply
        is_refused = isinstance(refusal, Exception) and not isinstance(refusal, ChatError)
        return translate_reply_error(refusal) if is_refused else None

    async def _check_memory(self) -> None:
        keys, was_low = self._get_keys_by_server(), self.is_low_on_memory
        shares = await asyncio.gather(*map(self._read_memory_share, keys.values()))
        known = [
            (share, name) for name, share in zip(keys, shares, strict=True) if share is not None
        ]
        if len(known) < len(keys):
            return  # keep the last state until all servers respond
        self.memory_share, fullest = max(known, default=(0.0, ""))
        share = round(self.memory_share, 2)
        if self.is_low_on_memory and not was_low:
            log.warning("hot.memory_low", redis=fullest, share=share)
        elif was_low and not self.is_low_on_memory:
            log.info("hot.memory_recovered", redis=fullest, share=share)

    async def _read_memory_share(self, key: str) -> float | None:
        """Return None if Redis is unavailable, or its user is not allowed to run INFO."""
        try:
            used, limit = await self._run(load_script("read_memory_use"), {"epoch": key})
        except ChatError:
            return None
        return used / limit if limit else 0.0
