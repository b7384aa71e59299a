"""Login attempts: who tries which account, and how that attempt is ranked. No I/O."""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import UserId


@dataclasses.dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One password to check or to hash.

    `source` is the network of a stranger, or the known device. `used` counts what the source
    has lately tried for this account. `is_over_budget`: unknown devices everywhere have lately
    guessed too often at this account, so this attempt has to wait. `is_guess`: they have tried
    several times already, so this attempt is checked after those at other accounts.
    """

    account: UserId
    source: str
    is_known: bool
    used: int = 0
    is_over_budget: bool = False
    is_guess: bool = False
    is_counted: bool = False  # in the budget of the account
