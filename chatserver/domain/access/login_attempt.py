"""A login attempt: its source, account and priority in the queue of password checks. No I/O."""

from __future__ import annotations

import dataclasses

from chatserver.domain.ids import UserId


@dataclasses.dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A request to check or hash one password.

    A device is known if it presented a device token from an earlier login to the account.
    `source` is the device if it is known, otherwise its network. `used` counts recent attempts from
    the source for this account. `is_over_budget`: unknown devices have made too many attempts for
    this account recently, so this attempt has to wait. `is_guess`: unknown devices have tried this
    account several times, so attempts for other accounts are checked first.
    """

    account: UserId
    source: str
    is_known: bool
    used: int = 0
    is_over_budget: bool = False
    is_guess: bool = False
    is_counted: bool = False  # True if the attempt counts against the limit for unknown devices
