"""Principals: a person with a token, or the host application with an API key. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

from chatserver.domain.ids import DeviceId, UserId

# With this scope, a key may act as any user; see `Principal.user`.
ACT_AS = "act_as"


@dataclasses.dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller, and the user on whose behalf the request is made.

    `user` is the token's user, or the user that an API key acts as, if any. `is_admin`: the user
    operates this installation (`auth.admins`). `device` is the device that the token was issued
    for, if any. `key` is the id of the API key. `is_new_account`: the user's account has stricter
    limits (`chatserver.hot.users.token_buckets`).
    """

    kind: Literal["user", "key"]
    user: UserId | None
    scopes: frozenset[str] = frozenset()
    device: DeviceId | None = None
    key: str | None = None
    issued_at: int = 0  # when a person's token was issued, seconds since 1970
    is_admin: bool = False
    is_new_account: bool = False

    @property
    def name(self) -> str:
        """The caller's unique name: a user and an API key never have the same name."""
        return f"key:{self.key}" if self.kind == "key" else f"user:{self.user}"
