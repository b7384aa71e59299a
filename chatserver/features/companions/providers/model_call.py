"""Model calls with retries, deadlines and a maximum response length.

::

    request ─► first delta? ── no: throttled, down, timeout ─► retry, `attempts_max` in all ─► raise
              │ yes
              ▼
           deltas ─► finish   the model's own end
              ├────► finish   `length`: longer than a response may be
              └────► finish   `broken`, `late`: failed or timed out after the first delta

Before the first delta, nothing has been published, so a retry is safe. After it there is no retry:
the partial text is kept, with the reason why the response ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator

import attrs
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.jitter import add_jitter
from chatserver.domain.text.graphemes import truncate
from chatserver.domain.text_validation import BodyBounds
from chatserver.errors import ChatError, Unavailable
from chatserver.features.companions.companion_options import get_safety_options
from chatserver.features.companions.model import Companion
from chatserver.features.companions.providers.interface import (
    Delta,
    Finish,
    ModelMessage,
    ModelProvider,
    ModelRequest,
    Piece,
    Purpose,
    ToolCall,
)
from chatserver.features.companions.providers.registry import Providers
from chatserver.features.companions.providers.token_estimates import estimate_tokens
from chatserver.features.companions.response_timeouts import (
    BETWEEN_S,
    FIRST_DELTA_S,
    RESPONSE_TIMEOUT_S,
)

log = structlog.get_logger()

ATTEMPTS_MAX = 3  # maximum attempts per model call; there is no retry after its first delta
BACKOFF_S = 0.5  # wait before the second attempt; doubles with each further attempt
BACKOFF_S_MAX = 8.0
# No model averages this many bytes per token. A response is truncated if it exceeds this size
# times its token limit.
BYTES_PER_TOKEN_MAX = 16


@dataclasses.dataclass(frozen=True, slots=True)
class CallLimits:
    """Timeouts (in seconds) and retry limits for a model call."""

    first_delta_s: float
    between_s: float  # timeout between two deltas
    answer_s: float  # timeout for the whole response, including retries
    attempts_max: int
    backoff_s: float


def get_call_limits() -> CallLimits:
    """Return the limits for calls of the companions' models."""
    return CallLimits(FIRST_DELTA_S, BETWEEN_S, RESPONSE_TIMEOUT_S, ATTEMPTS_MAX, BACKOFF_S)


async def stream_response(
    provider: ModelProvider,
    request: ModelRequest,
    call_limits: CallLimits,
    bounds: BodyBounds,
    clock: Clock,
) -> AsyncGenerator[Piece]:
    """Yield the deltas and tool calls of a model's response, followed by one `Finish`.

    Guarantees:
        Bounded: in time by `call_limits`, in length by `bounds` and `request.answer_tokens_max`.
        Failures before the first delta are retried, then raised. Later failures are reported in
            the `Finish`.
        Cancelling or closing the generator ends the call to the provider.

    Raises:
        Unavailable, Overloaded, ConfigError: as in `ModelProvider.stream`; no delta was yielded.
    """
    until = clock.monotonic() + call_limits.answer_s
    room = RemainingLength(bounds, request.answer_tokens_max)
    async with contextlib.AsyncExitStack() as stack:
        stream, piece = await _begin(
            provider=provider,
            request=request,
            call_limits=call_limits,
            until=until,
            clock=clock,
            stack=stack,
        )
        while True:
            if isinstance(piece, Finish):
                yield piece
                return
            if isinstance(piece, ToolCall):
                yield piece
            elif text := room.truncate(piece.text):
                yield Delta(text)
            if room.is_full:
                yield Finish("length")
                return
            try:
                piece = await _next(stream, min(call_limits.between_s, until - clock.monotonic()))
            except _TimedOut:
                yield Finish("late")
                return
            except ChatError as exc:
                log.warning("ai.stream_broken", model=request.model, error=exc.message)
                yield Finish("broken")
                return


@attrs.define(eq=False, repr=False, kw_only=True)
class ModelCaller:
    """Calls the models of companions for other purposes than responses."""

    _providers: Providers
    _bounds: BodyBounds
    _clock: Clock

    async def ask(
        self, persona: Companion, system: str, question: str, tokens_max: int, purpose: Purpose
    ) -> tuple[str, Finish, int]:
        """Return the whole text of a model's response, how it ended, and the tokens used.

        The companion's guardrail and moderation model apply. If the provider reports no token
        counts, they are estimated. For guarantees and errors, see `stream_response`.
        """
        request = ModelRequest(
            model=persona.model,
            system=system,
            messages=(ModelMessage("user", question),),
            answer_tokens_max=tokens_max,
            options=get_safety_options(persona.options),
            purpose=purpose,
        )
        provider = await self._providers.get_provider(persona.provider)
        text, end = "", Finish("broken")
        async with contextlib.aclosing(
            stream_response(provider, request, get_call_limits(), self._bounds, self._clock)
        ) as pieces:
            async for piece in pieces:
                if isinstance(piece, Delta):
                    text += piece.text
                elif isinstance(piece, Finish):
                    end = piece
        tokens_in, tokens_out = end.tokens_in, end.tokens_out
        if tokens_in is None:
            tokens_in = estimate_tokens(system) + estimate_tokens(question)
        return text, end, tokens_in + (estimate_tokens(text) if tokens_out is None else tokens_out)


class _TimedOut(Unavailable):
    """The model did not respond in time."""


async def _begin(
    provider: ModelProvider,
    request: ModelRequest,
    call_limits: CallLimits,
    until: float,
    clock: Clock,
    stack: contextlib.AsyncExitStack,
) -> tuple[AsyncGenerator[Piece], Piece]:
    """Start a stream, with retries; return the stream and its first item."""
    backoff_s = call_limits.backoff_s
    for attempts_left in reversed(range(call_limits.attempts_max)):
        stream = provider.stream(request)
        try:
            piece = await _next(stream, min(call_limits.first_delta_s, until - clock.monotonic()))
        except Unavailable as exc:
            await stream.aclose()
            wait_s = add_jitter(backoff_s)
            if not attempts_left or clock.monotonic() + wait_s >= until:
                raise
            log.info("ai.call_retried", model=request.model, error=exc.message, left=attempts_left)
            await asyncio.sleep(wait_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
        except BaseException:
            await stream.aclose()
            raise
        else:
            stack.push_async_callback(stream.aclose)
            return stream, piece
    raise AssertionError("the retry loop ended without a result")


async def _next(stream: AsyncGenerator[Piece], wait_s: float) -> Piece:
    try:
        async with asyncio.timeout(max(0.0, wait_s)):
            return await anext(stream)
    except TimeoutError:
        raise _TimedOut("the model did not respond in time") from None
    except StopAsyncIteration:
        raise Unavailable("the model's stream ended early") from None


class RemainingLength:
    """Tracks how many more characters and bytes a response may have."""

    def __init__(self, bounds: BodyBounds, tokens_max: int) -> None:
        self._chars = bounds.chars_max
        self._bytes = min(bounds.bytes_max, BYTES_PER_TOKEN_MAX * tokens_max)
        self.is_full = False

    def truncate(self, text: str) -> str:
        """Return the start of `text` that still fits, cut only between graphemes."""
        if len(text) > self._chars:
            text, self.is_full = truncate(text, self._chars), True
        raw = text.encode("utf-8", "replace")
        if len(raw) > self._bytes:
            self.is_full = True
            text = truncate(text, len(raw[: self._bytes].decode("utf-8", "ignore")))
            raw = text.encode("utf-8", "replace")
        self._chars -= len(text)
        self._bytes -= len(raw)
        return text
