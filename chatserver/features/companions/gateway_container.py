"""Dependencies of companions in every process that accepts messages.

A message to a companion is an ordinary message. The sender's token budget is checked before the
message is accepted, so the reply to `send` reports an exhausted budget. Responses are created in
`chatserver.features.companions.worker.assistant_worker`.
"""

from __future__ import annotations

import structlog

from chatserver.container import feature_ports
from chatserver.container.core import CoreContainer
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import RateLimited, Unavailable
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.settings import Companions
from chatserver.protocol import frames

log = structlog.get_logger()


def check_companion_send(core: CoreContainer) -> feature_ports.CheckSend:
    budgets = TokenBudgets(core.hot, core.settings.get(Companions))

    async def check(user: UserId, frame: frames.Send) -> None:
        """Check that the user's token budget allows a message to a companion now.

        Guarantees:
            If the message has already been committed, a retry is accepted.
            If the budget cannot be read, the message is allowed; without Redis, its commit fails.

        Raises:
            RateLimited: too many responses are in progress, or the day's tokens are used up.
                `retry_after_ms` is the time to wait.
        """
        chat = ChatId(frame.chat)
        try:
            await budgets.check(user, chat)
        except RateLimited:
            if await core.hot_membership.find_digest(chat, user, Ref(frame.ref)) is None:
                raise
        except Unavailable as exc:
            log.warning("companion_budget.check_failed", error=exc.message)

    return check
