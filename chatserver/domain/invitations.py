"""Group invitations. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

Policy = Literal["ask_strangers", "always", "never"]
State = Literal["pending", "declined"]
ListedKind = Literal["direct", "group"]  # for each kind, a user has a separate limit of chats


@dataclasses.dataclass(frozen=True, slots=True)
class Invitation:
    user: str
    chat: str
    inviter: str
    role: Literal["admin", "member"]
    name: str | None
    created_ms: int
    expires_s: int
    state: State = "pending"
