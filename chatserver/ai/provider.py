"""What every model is to us: it is given what was said, and says something, piece by piece.

A provider translates, and nothing more: deadlines, tries and bounds are those of
`chatserver.ai.speaking`, the same for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Literal, Protocol

Role = Literal["user", "assistant"]
# How a stream ends: as the model wanted, at a bound of length, or it would not say it.
End = Literal["done", "length", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """Something that was said, and by which side."""

    role: Role
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What a model is asked. `messages` begin with the user, and the sides take turns."""

    model: str
    system: str
    messages: tuple[Said, ...]
    answer_tokens_max: int


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """What the model said since the last one; not empty."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The end of a stream. Tokens as the provider counted them, None where it did not."""

    end: End
    tokens_in: int | None = None
    tokens_out: int | None = None


class Provider(Protocol):
    """A service that has models."""

    def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
        """Ask once, and yield what comes; a `Finish` is the last thing.

        Guarantees:
            A stream that is over without a `Finish` was cut off, and raises.
            Closing it ends the call.

        Raises:
            Overloaded: there was too much of us, or of others.
            Unavailable: it does not answer, or no further; the same call may work later.
            ConfigError: it will not work before somebody who runs this server mends it.
        """
