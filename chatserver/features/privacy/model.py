"""Export and erasure jobs. No I/O."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Literal

Kind = Literal["export", "erasure"]
State = Literal["waiting", "running", "ready", "done", "failed"]

FINISHED: frozenset[State] = frozenset({"ready", "done", "failed"})


Line = tuple[str, str, int]  # a receipt line without its step: location, kind of data, and number


@dataclasses.dataclass(frozen=True, slots=True)
class ReceiptLine:
    """A line in an erasure receipt: step, location, kind of data, and number of deleted items."""

    step: str
    where: str
    what: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """An export or erasure job.

    `steps`: the receipt lines from the completed erasure steps. `holder`: the worker that has
    leased the job until `until_ms`. `why`: the error message for the user.
    """

    id: str
    kind: Kind
    user: str
    created_ms: int
    changed_ms: int
    state: State = "waiting"
    progress: int = 0  # percent
    steps: tuple[ReceiptLine, ...] = ()
    why: str = ""
    size: int = 0  # bytes
    tries: int = 0
    holder: str = ""
    until_ms: int = 0
    expires_at: int | None = None  # seconds since 1970

    @property
    def is_finished(self) -> bool:
        """True if the job has completed or failed."""
        return self.state in FINISHED


def new_job_id() -> str:
    """Return an unguessable id. Anyone who knows an erasure's id can read its receipt."""
    return secrets.token_hex(24)
