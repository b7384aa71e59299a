"""Token budgets: limits on tokens per day and concurrent responses per user.

Data: `{pN}:tokens:<user>` (hash, expires after two days). Fields:

- `day`: days since 1970, UTC
- `used`: tokens used that day, including reservations that expired without being charged
- `t:<chat>`, for each response in progress: the response id, the reserved tokens, and when the
  reservation expires
"""

from __future__ import annotations

import datetime

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import RateLimited
from chatserver.features.companions.keys import CompanionKeys
from chatserver.features.companions.response_timeouts import RESPONSE_TIMEOUT_S
from chatserver.features.companions.settings import Companions
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script
from chatserver.telemetry import metrics

BUSY_RETRY_MS = 1000
_TOO_MANY, _USED_UP = 1, 2


class TooManyResponses(RateLimited):
    """The user has reached the limit of concurrent responses."""


class TokenBudgets:
    """Checks, reserves and charges users' tokens."""

    def __init__(self, hot: HotClient, settings: Companions) -> None:
        self._hot = hot
        self._keys = CompanionKeys(hot.keys.partitions)
        self._settings = settings

    async def check(self, user: UserId, chat: ChatId) -> None:
        """Check that the user's budget allows a response to a new message in `chat`.

        Raises:
            TooManyResponses: too many responses are in progress in other companion sessions.
            RateLimited: the day's tokens are used up; the error contains the time until the reset.
        """
        await self._reserve(user, chat, "", 0)

    async def reserve(self, user: UserId, chat: ChatId, response_id: str, tokens: int) -> None:
        """Reserve tokens for a response; a restarted response replaces its own reservation.

        Guarantees:
            Across all processes, at most `responses_per_user_max` of a user's responses hold a
            reservation.
            Only responses that started before the budget was used up can exceed it.

        Raises: the same as `check`.
        """
        await self._reserve(user, chat, response_id, tokens)

    async def charge(self, user: UserId, chat: ChatId, response_id: str, spent: int) -> bool:
        """Replace a reservation with the tokens used; return False if it no longer exists.

        If `response_id` is empty, charge the tokens without a reservation.
        """
        done: int = await self._hot.run(
            load_script("charge_response"),
            {"tokens": self._keys.tokens(user)},
            {"chat": chat, "response": response_id, "spent": spent},
        )
        return bool(done)

    async def _reserve(self, user: UserId, chat: ChatId, response_id: str, tokens: int) -> None:
        settings = self._settings
        result, number = await self._hot.run(
            load_script("reserve_response"),
            {"tokens": self._keys.tokens(user)},
            {
                "chat": chat,
                "response": response_id,
                "requested": tokens,
                "responses_max": settings.responses_per_user_max,
                "tokens_max": settings.tokens_per_day,
                "hold_ms": int(RESPONSE_TIMEOUT_S * 2000),
            },
        )
        if result == _TOO_MANY:
            metrics.RATE_LIMITED.labels("turns").inc()
            raise TooManyResponses(
                f"you can have at most {settings.responses_per_user_max} responses in progress; "
                "wait for one to finish",
                retry_after_ms=BUSY_RETRY_MS,
            )
        if result == _USED_UP:
            metrics.RATE_LIMITED.labels("tokens").inc()
            raise RateLimited(
                f"your {settings.tokens_per_day} tokens for today are used up; the limit "
                f"resets in {datetime.timedelta(seconds=number // 1000)}, at 00:00 UTC",
                retry_after_ms=number,
            )
