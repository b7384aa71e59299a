"""Periodic refresh of the sessions: renews presence in Redis and detects lost events."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence

import structlog

from chatserver.container.gateway import GatewayContainer
from chatserver.domain.ids import UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.session_registration import SessionRegistration
from chatserver.gateway.session.shared_session_context import SessionTasks

log = structlog.get_logger()

USERS_PER_CALL_MAX = 500


class SessionRefresher:
    """Refreshes the state of this gateway's sessions in Redis, and sends events that were lost."""

    def __init__(
        self,
        *,
        container: GatewayContainer,
        registry: LocalSessions,
        directory: SessionRegistration,
        channels: LargeChatDelivery,
        tasks: SessionTasks,
        interval_s: float,
    ) -> None:
        self._container = container
        self._registry = registry
        self._directory = directory
        self._channels = channels
        self._tasks = tasks
        self._interval_s = interval_s
        self._ended_users: list[UserId] = []

    async def run(self) -> None:
        """Refresh periodically until cancelled."""
        while True:
            await asyncio.sleep(add_jitter(self._interval_s, 0.8))
            await self.refresh(is_loss_possible=False)

    def refresh_soon(self) -> None:
        """Start a refresh after a possible data loss in Redis."""
        self._tasks.spawn(self.refresh(), "refresh")

    async def refresh(self, *, is_loss_possible: bool = True) -> None:
        """Refresh presence and compare each session's cursor with its inbox head (the newest seq).

        `is_loss_possible`: Redis may have lost this gateway's stream records or session data.
        """
        steps: list[Callable[[], Awaitable[object]]] = [
            self._container.gateway_stream.renew,
            functools.partial(self._directory.renew, is_loss_possible=is_loss_possible),
        ]
        get_partition = self._container.hot.keys.get_partition
        groups: dict[int, list[UserId]] = {}
        for user in self._registry.list_users():
            groups.setdefault(get_partition(user), []).append(user)
        for users in groups.values():
            steps += [
                functools.partial(self._publish_presence, users[start : start + USERS_PER_CALL_MAX])
                for start in range(0, len(users), USERS_PER_CALL_MAX)
            ]
        steps.append(self._channels.refresh)
        if is_loss_possible:
            steps.append(self._directory.check_revocations)
        # Continue after an error: if a cluster node is down, users on other nodes are refreshed.
        for step in steps:
            try:
                await step()
            except ChatError as exc:
                log.warning("gateway.refresh_failed", error=exc.message)

    async def _publish_presence(self, users: Sequence[UserId]) -> None:
        states = await self._container.presence.set_online(users)
        for user, state in zip(users, states, strict=True):
            sessions = self._registry.list_sessions(user)
            if not sessions:
                self.remove_presence_soon(user)  # the last session ended during the call
            for session in list(sessions):
                session.compare(state)

    def remove_presence_soon(self, user: UserId) -> None:
        """Remove the user's presence on this gateway after this tick if no session remains."""
        if not self._ended_users:
            asyncio.get_running_loop().call_soon(self._start_removal)
        self._ended_users.append(user)

    def _start_removal(self) -> None:
        ended, self._ended_users = self._ended_users, []
        offline = [user for user in set(ended) if not self._registry.list_sessions(user)]
        if offline:
            self._tasks.spawn(self._remove_presence(offline), "withdraw")

    async def _remove_presence(self, users: list[UserId]) -> None:
        with contextlib.suppress(ChatError):  # the presence entry expires (TTL)
            await self._container.presence.set_offline(users)

    def prune_soon(self, users: set[UserId]) -> None:
        """Delete the users' presence entries for gateways that no longer exist."""
        self._tasks.spawn(self._prune(list(users)), "prune")

    async def _prune(self, users: list[UserId]) -> None:
        with contextlib.suppress(ChatError):  # The next message to these users prunes again.
            await self._container.presence.prune(users)
