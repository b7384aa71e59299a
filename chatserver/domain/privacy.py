"""What users may have of their data: jobs that copy it, or take it away. No I/O."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Literal

Kind = Literal["export", "erasure"]
State = Literal["waiting", "running", "ready", "done", "failed"]

FINISHED: frozenset[State] = frozenset({"ready", "done", "failed"})


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """A line of a receipt: what was taken away where, and how much of it."""

    step: str
    where: str
    what: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """An export or an erasure. `steps`: what an erasure has done, in order.

    `until_ms`: nobody but `holder` takes it before. `why`: in words, for who asked.
    """

    id: str
    kind: Kind
    user: str
    created_ms: int
    changed_ms: int
    state: State = "waiting"
    progress: int = 0  # percent
    steps: tuple[Done, ...] = ()
    why: str = ""
    size: int = 0  # bytes
    tries: int = 0
    holder: str = ""
    until_ms: int = 0
    expires_at: int | None = None  # seconds since 1970

    @property
    def is_finished(self) -> bool:
        """True if no worker has to do anything about it."""
        return self.state in FINISHED


def new_job_id() -> str:
    """Return a name that nobody guesses: who has it may see the job."""
    return secrets.token_hex(24)
