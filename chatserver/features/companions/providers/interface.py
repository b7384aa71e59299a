"""Interface of model providers: a conversation in, a streamed response out.

A provider only translates requests and responses. The module `model_call` adds deadlines,
retries and length limits, which are the same for all providers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any, Final, Literal, Protocol

import msgspec

from chatserver.errors import MODEL_DOWN, Unavailable
from chatserver.features.companions.companion_options import CompanionOptions

Purpose = Literal["response", "summary", "memory"]
Role = Literal["user", "assistant"]
# How a response ends: the model has finished, has reached the length limit, refuses to respond, or
# waits for the results of its tool calls.
End = Literal["done", "length", "refused", "tools"]
TOOL_INPUT_CHARS_MAX: Final = 32_768


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image that the user sent: PNG, JPEG, GIF or WebP."""

    type: str  # media type
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the model. `id` comes from the provider. `input` is unvalidated JSON."""

    id: str
    name: str
    input: str

    def append(self, fragment: str, server: str) -> ToolCall:
        """Return the call with more input. Raises Unavailable if the input becomes too long."""
        if len(self.input) + len(fragment) > TOOL_INPUT_CHARS_MAX:
            raise Unavailable(
                f"{server}: a tool call is longer than {TOOL_INPUT_CHARS_MAX} characters",
                public=MODEL_DOWN,
            )
        return dataclasses.replace(self, input=self.input + fragment)

    def parse_input(self) -> dict[str, Any] | None:
        """Return the input; None if it is not a JSON object. Blank input is an empty object."""
        if not self.input.strip():
            return {}
        try:
            return msgspec.json.decode(self.input, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the tool call with this id; with `is_error`, the reason why it failed."""

    id: str
    text: str
    is_error: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMessage:
    """A message of the conversation, with its author's role.

    An assistant message may have `calls`; the next message then has their `results`. A user message
    that no response has accepted yet has `is_checked` False: guardrails and moderation models must
    check it.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    is_checked: bool = False
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model. The first message is from the user, and the roles alternate.

    `options` has no default, so that no request leaves out the companion's guardrail or moderation.
    """

    model: str
    system: str
    messages: tuple[ModelMessage, ...]
    answer_tokens_max: int
    options: CompanionOptions
    purpose: Purpose = "response"


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """Text generated since the last delta; empty while the model generates a tool call."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The end of a stream. The token counts are None if the provider reported none.

    `model_call` adds the ends `broken` and `late`.
    """

    end: End | Literal["broken", "late"]
    tokens_in: int | None = None
    tokens_out: int | None = None


Piece = Delta | ToolCall | Finish


class ModelProvider(Protocol):
    """A service that runs models."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Send one request and yield the response; the last item is a `Finish`.

        Guarantees:
            If the connection breaks during the response, the generator raises.
            Closing the generator ends the call.

        Raises:
            Overloaded: the provider throttles requests or is over capacity.
            Unavailable: the provider does not respond, or stopped midway; a retry may succeed.
            ConfigError: a retry cannot succeed until an operator corrects the configuration.
        """
