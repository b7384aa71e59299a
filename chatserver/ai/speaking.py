"""A model's answer within its bounds: tries, deadlines, and how long it may be.

::

    ask ─► first delta? ──── no: throttled, down, silent ─► again, `attempts_max` in all ─► raised
              │ yes
              ▼
           deltas ─► finish   the model's own end
              ├────► finish   `length`: more than an answer may have
              └────► finish   `broken`, `late`: it died or fell silent after it had begun

Before the first delta nobody has seen anything, so another try is safe. After it there is none:
what was said stands, and says how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from typing import Literal

import structlog

from chatserver.ai.provider import Ask, Delta, End, Finish, Provider
from chatserver.domain.clock import Clock
from chatserver.domain.jitter import jittered
from chatserver.domain.text import BodyBounds
from chatserver.errors import ChatError, Unavailable

log = structlog.get_logger()

BACKOFF_S_MAX = 8.0
BYTES_PER_TOKEN_MAX = 16  # no model's tokens are longer, on average: a stream that runs on is cut


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait for a model, in seconds, and how often it is tried."""

    first_delta_s: float
    between_s: float
    answer_s: float  # in all, further tries included
    attempts_max: int
    backoff_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Spoken:
    """How an answer ended, and the tokens of it, as far as the provider told."""

    end: End | Literal["broken", "late"]
    tokens_in: int | None = None
    tokens_out: int | None = None


async def speak(
    provider: Provider, ask: Ask, pace: Pace, bounds: BodyBounds, clock: Clock
) -> AsyncGenerator[Delta | Spoken]:
    """Yield a model's answer, delta by delta, and at last how it ended.

    Guarantees:
        Bounded: in time by `pace`, in length by `bounds` and `ask.answer_tokens_max`.
        What failed before its first delta is tried again, and then raised; later nothing is raised.
        Cancellation, and closing it: the call to the provider ends.

    Raises:
        Unavailable, Overloaded, ConfigError: as `Provider.stream`; nothing was said.
    """
    until = clock.monotonic() + pace.answer_s
    room = Room(bounds, ask.answer_tokens_max)
    async with contextlib.AsyncExitStack() as stack:
        stream, piece = await _begin(provider, ask, pace, until, clock, stack)
        while True:
            if isinstance(piece, Finish):
                yield Spoken(piece.end, piece.tokens_in, piece.tokens_out)
                return
            text = room.take(piece.text)
            if text:
                yield Delta(text)
            if room.is_full:
                yield Spoken("length")
                return
            try:
                piece = await _next(stream, min(pace.between_s, until - clock.monotonic()))
            except _Silent:
                yield Spoken("late")
                return
            except ChatError as exc:
                log.warning("ai.broken", model=ask.model, error=exc.message)
                yield Spoken("broken")
                return


class _Silent(Unavailable):
    """Nothing came in time."""


async def _begin(
    provider: Provider,
    ask: Ask,
    pace: Pace,
    until: float,
    clock: Clock,
    stack: contextlib.AsyncExitStack,
) -> tuple[AsyncGenerator[Delta | Finish], Delta | Finish]:
    """Return a stream that has begun, and the first piece of it."""
    backoff_s = pace.backoff_s
    for left in reversed(range(pace.attempts_max)):
        stream = provider.stream(ask)
        try:
            piece = await _next(stream, min(pace.first_delta_s, until - clock.monotonic()))
        except Unavailable as exc:
            await stream.aclose()
            wait_s = jittered(backoff_s)
            if not left or clock.monotonic() + wait_s >= until:
                raise
            log.info("ai.again", model=ask.model, error=exc.message, left=left)
            await asyncio.sleep(wait_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
        except BaseException:
            await stream.aclose()
            raise
        else:
            stack.push_async_callback(stream.aclose)
            return stream, piece
    raise AssertionError("the last try returns or raises")


async def _next(stream: AsyncGenerator[Delta | Finish], wait_s: float) -> Delta | Finish:
    try:
        async with asyncio.timeout(max(0.0, wait_s)):
            return await anext(stream)
    except TimeoutError:
        raise _Silent("the model did not answer in time") from None
    except StopAsyncIteration:
        raise Unavailable("the model's stream ended without an end") from None


class Room:
    """How much more an answer may say."""

    def __init__(self, bounds: BodyBounds, tokens_max: int) -> None:
        self._chars = bounds.chars_max
        self._bytes = min(bounds.bytes_max, BYTES_PER_TOKEN_MAX * tokens_max)
        self.is_full = False

    def take(self, text: str) -> str:
        """Return as much of `text` as there is room for, in whole characters."""
        if len(text) > self._chars:
            text, self.is_full = text[: self._chars], True
        raw = text.encode("utf-8", "replace")
        if len(raw) > self._bytes:
            self.is_full = True
            text = raw[: self._bytes].decode("utf-8", "ignore")
            raw = text.encode()
        self._chars -= len(text)
        self._bytes -= len(raw)
        return text
