"""Group invitations: their limits and states. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

INVITATION_LIFETIME_S = 30 * 86_400
INVITATIONS_PENDING_MAX = 100  # per invited user; see `GroupInvitations.invite`
INVITATIONS_DECLINED_MAX = 500  # per invited user; at this number, the oldest is forgotten
INVITATIONS_FROM_INVITER_MAX = 5  # pending and declined ones, per inviter and invited user

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
