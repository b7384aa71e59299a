"""Interface of model providers: a conversation in, a streamed response out.

A provider only translates requests and responses. Module `bounded_response` adds deadlines, retries
and bounds, which are the same for all providers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Final, Literal, Protocol

from chatserver.features.companions.options import NO_OPTIONS, Options

Purpose = Literal["response", "summary", "memory"]
Role = Literal["user", "assistant"]
# How a stream ends: the model finished, the length limit was reached, the model refused, or it
# waits for the results of its tool calls.
End = Literal["done", "length", "refused", "tools"]
TOOL_INPUT_CHARS_MAX: Final = 32_768  # per tool call


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image that the user sent: PNG, JPEG, GIF or WebP."""

    type: str  # media type
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the model. The provider sets `id`. `input` is unvalidated JSON."""

    id: str
    name: str
    input: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, or the reason for its failure."""

    id: str
    text: str
    is_error: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMessage:
    """A message of the conversation and its role.

    An assistant's message may have `calls`; then the next message has their `results`.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model request. The first message is the user's, and the roles alternate."""

    model: str
    system: str
    messages: tuple[ModelMessage, ...]
    answer_tokens_max: int
    options: Options = NO_OPTIONS
    purpose: Purpose = "response"


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """Text generated since the last delta; empty if the model is still generating a tool call."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """End of a stream. Token counts come from the provider; None if it reported none."""

    end: End
    tokens_in: int | None = None
    tokens_out: int | None = None


Piece = Delta | ToolCall | Finish


class Provider(Protocol):
    """A service that runs models."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Send one request and yield the response; a `Finish` comes last.

        Guarantees:
            If the response is cut off, the stream raises.
            Closing the generator ends the call.

        Raises:
            Overloaded: the provider throttles requests or is over capacity.
            Unavailable: the provider does not respond, or stopped midway; a retry may succeed.
            ConfigError: retries fail until an operator corrects the configuration.
        """
