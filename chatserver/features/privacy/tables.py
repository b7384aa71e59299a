"""DynamoDB attributes of exports and erasures, in table `directory`."""

from __future__ import annotations

from typing import Final


class JobField:
    """Attributes of exports and erasures, in `directory`."""

    KIND: Final = "kind"  # export or erasure
    USER: Final = "user"
    STATE: Final = "state"  # waiting, running, ready, done or failed
    CREATED: Final = "created"  # milliseconds since 1970
    CHANGED: Final = "changed"  # milliseconds since 1970
    PROGRESS: Final = "progress"  # percent
    STEPS: Final = "steps"  # erasures, JSON: completed steps by store
    WHY: Final = "why"  # reason for failing or waiting
    SIZE: Final = "size"  # exports: bytes
    TRIES: Final = "tries"  # number of attempts by workers
    HOLDER: Final = "holder"  # worker that runs the job
    HELD_UNTIL: Final = "held_until"  # lease expiry, milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970
    JOB: Final = "job"  # users: the newest export
    DAY: Final = "day"  # users: day of the newest export, in days since 1970
    EXPORTS: Final = "exports"  # users: number of exports requested on `day`
