"""Who asks: a person with a token, or the host application with an API key. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

from chatserver.domain.ids import DeviceId, UserId

# A key that has it may act as any user, see `Principal.user`.
ACT_AS = "act_as"


@dataclasses.dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and on whose behalf.

    `user` is the person; of a key the user whom it acts as, or None if it acts as none.
    `is_admin`: a person who operates this installation (`auth.admins`).
    `device` is the one that a token was made for, where it was made for one; `key` the key's id.
    """

    kind: Literal["user", "key"]
    user: UserId | None
    scopes: frozenset[str] = frozenset()
    device: DeviceId | None = None
    key: str | None = None
    issued_at: int = 0  # of a person's token, seconds since 1970
    is_admin: bool = False

    @property
    def name(self) -> str:
        """What stands for who asks, in limits and notes: no user has the name of a key."""
        return f"key:{self.key}" if self.kind == "key" else f"user:{self.user}"
