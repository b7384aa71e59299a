"""Model rounds of one response: call the model, run its tool calls, call the model again.

::

    context ─► model ─► deltas ─► publisher
                 ▲  │ tool calls
                 │  ▼
                results ◄─ host application

A round is one model call and its tool calls. All rounds share one deadline. At most `CALLS_MAX`
tool calls are made. For any further calls, the model gets errors instead of results.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import structlog

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.text_validation import BodyBounds
from chatserver.errors import ChatError
from chatserver.features.companions.model import Companion
from chatserver.features.companions.providers.interface import (
    Delta,
    Finish,
    Image,
    ModelMessage,
    ModelProvider,
    ModelRequest,
    ToolCall,
    ToolResult,
)
from chatserver.features.companions.providers.model_call import get_call_limits, stream_response
from chatserver.features.companions.providers.registry import Providers
from chatserver.features.companions.worker.prompt_context import Context
from chatserver.features.companions.worker.response_publisher import ResponsePublisher
from chatserver.features.companions.worker.tool_calls import CALLS_MAX, ToolRunner
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

ROUNDS_MAX = CALLS_MAX + 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Round:
    """The output of one model call."""

    text: str
    calls: tuple[ToolCall, ...]
    end: Finish


class ModelRounds:
    """Generates one response and publishes its text."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        providers: Providers,
        persona: Companion,
        tools: ToolRunner,
        publisher: ResponsePublisher,
    ) -> None:
        self._clock = clock
        self._call_limits = get_call_limits()
        self._providers = providers
        self._persona = persona
        self._tools = tools
        self._publisher = publisher
        self._bounds = settings.chats.body_bounds
        self._until = clock.monotonic() + self._call_limits.answer_s
        self._tokens: list[tuple[int | None, int | None]] = []

    async def run(self, context: Context, images: Mapping[str, Image]) -> Finish | ChatError:
        """Generate the response. Return a ChatError if the model fails before yielding any text."""
        messages = context.build_messages(images)
        try:
            provider = await self._providers.get_provider(self._persona.provider)
            for _ in range(ROUNDS_MAX):
                done = await self._run_round(provider, context.system, messages)
                if not done.calls or done.end.end not in ("done", "tools"):
                    return self._add_token_counts(done.end)
                results = [await self._run_tool(call) for call in done.calls]
                failpoint("assistant.after_tool")
                if len(self._publisher.text) >= self._bounds.chars_max:
                    return self._add_token_counts(Finish("length"))
                messages = (
                    *messages,
                    ModelMessage("assistant", done.text, calls=done.calls),
                    ModelMessage("user", "", results=tuple(results)),
                )
        except ChatError as exc:
            log.warning("assistant.response_failed", companion=self._persona.id, error=exc.message)
            return exc if not self._publisher.text else self._add_token_counts(Finish("broken"))
        log.warning("assistant.too_many_tool_calls", companion=self._persona.id)
        return self._add_token_counts(Finish("done"))

    async def _run_round(
        self, provider: ModelProvider, system: str, messages: tuple[ModelMessage, ...]
    ) -> _Round:
        persona, began = self._persona, self._clock.monotonic()
        request = ModelRequest(
            persona.model, system, messages, persona.answer_tokens_max, persona.options
        )
        call_limits = dataclasses.replace(self._call_limits, answer_s=max(0.0, self._until - began))
        text, calls, end = "", list[ToolCall](), Finish("broken")
        bounds = _subtract_text(self._bounds, self._publisher.text)
        pieces = stream_response(provider, request, call_limits, bounds, self._clock)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                match piece:
                    case Delta():
                        if self._publisher.index == 0:
                            metrics.FIRST_DELTA.observe(self._clock.monotonic() - began)
                        text += piece.text
                        self._publisher.append(piece.text)
                        failpoint("assistant.mid_answer")
                    case ToolCall():
                        calls.append(piece)
                    case Finish():
                        end = piece
        self._tokens.append((end.tokens_in, end.tokens_out))
        return _Round(text, tuple(calls), end)

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        self._publisher.show_tool(call.name)
        return await self._tools.run(call)

    def _add_token_counts(self, end: Finish) -> Finish:
        """Return `end` with the total token counts, if each model call reported its counts."""
        counts = [sum(filter(None, column)) for column in zip(*self._tokens, strict=True)]
        if not counts or any(None in pair for pair in self._tokens):
            return Finish("done" if end.end == "tools" else end.end)
        return Finish("done" if end.end == "tools" else end.end, counts[0], counts[1])


def _subtract_text(bounds: BodyBounds, text: str) -> BodyBounds:
    return dataclasses.replace(
        bounds,
        chars_max=max(1, bounds.chars_max - len(text)),
        bytes_max=max(1, bounds.bytes_max - len(text.encode())),
    )
