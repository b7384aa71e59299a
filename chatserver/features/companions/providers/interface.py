"""Interface of model providers: a conversation in, a streamed response out.

A provider only translates. Deadlines, retries and bounds are the same for all providers, in
`chatserver.features.companions.providers.bounded_response`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Literal, Protocol

from chatserver.features.companions.options import NO_OPTIONS, Options

Purpose = Literal["response", "summary", "memory"]
Role = Literal["user", "assistant"]
# How a stream ends: the model finished, the length limit was reached, or the model refused.
End = Literal["done", "length", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMessage:
    """A message of the conversation and its role."""

    role: Role
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """A model request. The first message is the user's, and the roles alternate."""

    model: str
    system: str
    messages: tuple[ModelMessage, ...]
    answer_tokens_max: int
    options: Options = NO_OPTIONS
    purpose: Purpose = "response"


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """Text generated since the last delta; not empty."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """End of a stream. Token counts come from the provider; None if it reported none."""

    end: End
    tokens_in: int | None = None
    tokens_out: int | None = None


class Provider(Protocol):
    """A service that runs models."""

    def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
        """Send one request and yield the response; a `Finish` comes last.

        Guarantees:
            If the response is cut off, the stream raises.
            Closing the generator ends the call.

        Raises:
            Overloaded: the provider throttles requests or is over capacity.
            Unavailable: the provider does not respond, or stopped midway; a retry may succeed.
            ConfigError: retries fail until an operator corrects the configuration.
        """
