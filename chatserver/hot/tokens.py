"""What users may have of models: so many tokens a day, so many answers at once.

Data: ``{pN}:tokens:<user>`` (hash): ``day`` (since 1970, UTC) and what is ``used`` of it, and
``t:<chat>`` for each answer that is being made: its turn, the tokens reserved for it, and until
when. Expires after two days. What died without being settled counts as used.
"""

from __future__ import annotations

import datetime

from chatserver.config import Assistant
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import RateLimited
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script
from chatserver.telemetry import metrics

BUSY_RETRY_MS = 1000
_TOO_MANY, _USED_UP = 1, 2


class TooManyTurns(RateLimited):
    """As many answers are being made for the user as there may be."""


class TokenBudgets:
    """The budgets of all users."""

    def __init__(self, hot: HotClient, settings: Assistant) -> None:
        self._hot = hot
        self._settings = settings

    async def check(self, user: UserId, chat: ChatId) -> None:
        """See that a message of the user to a companion may be answered now.

        Raises:
            TooManyTurns: in other sessions as many answers are being made as there may be.
            RateLimited: the tokens of the day are used up; says until when.
        """
        await self._ask(user, chat, "", 0)

    async def reserve(self, user: UserId, chat: ChatId, turn: str, tokens: int) -> None:
        """Reserve the tokens of an answer; one that is begun again takes its own place.

        Guarantees:
            No more than `turns_in_flight_max` answers hold a reservation, whoever asks and where.
            A user is over the budget by the last answers that were begun under it, at most.

        Raises: as `check`.
        """
        await self._ask(user, chat, turn, tokens)

    async def settle(self, user: UserId, chat: ChatId, turn: str, spent: int) -> bool:
        """Count what an answer has used instead of what was reserved; False if that was done.

        Without a `turn` it is counted in addition to what is.
        """
        done: int = await self._hot.run(
            load_script("pay_turn"),
            {"tokens": self._hot.keys.tokens(user)},
            {"chat": chat, "turn": turn, "spent": spent},
        )
        return bool(done)

    async def _ask(self, user: UserId, chat: ChatId, turn: str, tokens: int) -> None:
        settings = self._settings
        why, number = await self._hot.run(
            load_script("allow_turn"),
            {"tokens": self._hot.keys.tokens(user)},
            {
                "chat": chat,
                "turn": turn,
                "wanted": tokens,
                "turns_max": settings.turns_in_flight_max,
                "tokens_max": settings.tokens_per_day,
                "hold_ms": int(settings.answer_s * 2000),
            },
        )
        if why == _TOO_MANY:
            metrics.RATE_LIMITED.labels("turns").inc()
            raise TooManyTurns(
                f"at most {settings.turns_in_flight_max} answers are made for you at once: "
                "wait for one of them",
                retry_after_ms=BUSY_RETRY_MS,
            )
        if why == _USED_UP:
            metrics.RATE_LIMITED.labels("tokens").inc()
            raise RateLimited(
                f"your {settings.tokens_per_day} tokens of today are used up; there are new ones "
                f"in {datetime.timedelta(seconds=number // 1000)}, at 00:00 UTC",
                retry_after_ms=number,
            )
