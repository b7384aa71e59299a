"""Periodic refresh of the sessions: presence in Redis, and lost events found by inbox heads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence

import structlog

from chatserver.container.gateway import GatewayContainer
from chatserver.domain.ids import UserId
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError
from chatserver.gateway.delivery.large_chat_delivery import Channels
from chatserver.gateway.session.session_context import SessionTasks
from chatserver.gateway.session.session_directory import SessionDirectory
from chatserver.gateway.session.session_registry import SessionRegistry

log = structlog.get_logger()

ANNOUNCED_MAX = 500  # users per call


class SessionRefresher:
    """Keeps what Redis knows of this gateway's sessions, and the sessions, up to date."""

    def __init__(
        self,
        *,
        container: GatewayContainer,
        registry: SessionRegistry,
        directory: SessionDirectory,
        channels: Channels,
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
            await asyncio.sleep(jittered(self._interval_s, 0.8))
            await self.refresh(is_doubtful=False)

    def refresh_soon(self) -> None:
        """Start a refresh, because data may have been lost."""
        self._tasks.spawn(self.refresh(), "refresh")

    async def refresh(self, *, is_doubtful: bool = True) -> None:
        """Refresh presence and compare each session's cursor with its inbox head.

        `is_doubtful`: records for this gateway, or data that it wrote to Redis, may have been lost.
        """
        steps: list[Callable[[], Awaitable[object]]] = [
            self._container.gateway_stream.renew,
            functools.partial(self._directory.renew, is_doubtful=is_doubtful),
        ]
        partition_of = self._container.hot.keys.partition_of
        groups: dict[int, list[UserId]] = {}
        for user in self._registry.users():
            groups.setdefault(partition_of(user), []).append(user)
        for users in groups.values():
            steps += [
                functools.partial(self._announce, users[at : at + ANNOUNCED_MAX])
                for at in range(0, len(users), ANNOUNCED_MAX)
            ]
        steps.append(self._channels.refresh)
        if is_doubtful:
            steps.append(self._directory.check_revocations)
        # One by one: if a cluster node is down, users on the other nodes are still refreshed.
        for step in steps:
            try:
                await step()
            except ChatError as exc:
                log.warning("gateway.refresh_failed", error=exc.message)

    async def _announce(self, users: Sequence[UserId]) -> None:
        states = await self._container.presence.announce(users)
        for user, state in zip(users, states, strict=True):
            sessions = self._registry.sessions_of(user)
            if not sessions:
                self.withdraw_soon(user)  # the last session ended during the call
            for session in list(sessions):
                session.compare(state)

    def withdraw_soon(self, user: UserId) -> None:
        """Remove the presence of a user whose last session here ended; batched per tick."""
        if not self._ended_users:
            asyncio.get_running_loop().call_soon(self._start_withdrawing)
        self._ended_users.append(user)

    def _start_withdrawing(self) -> None:
        ended, self._ended_users = self._ended_users, []
        gone = [user for user in set(ended) if not self._registry.sessions_of(user)]
        if gone:
            self._tasks.spawn(self._withdraw(gone), "withdraw")

    async def _withdraw(self, users: list[UserId]) -> None:
        with contextlib.suppress(ChatError):  # the entry expires through its TTL
            await self._container.presence.withdraw(users)

    def prune_soon(self, users: set[UserId]) -> None:
        """Remove the presence of users at a gateway that no longer exists."""
        self._tasks.spawn(self._prune(list(users)), "prune")

    async def _prune(self, users: list[UserId]) -> None:
        with contextlib.suppress(ChatError):  # the next message to these users retries
            await self._container.presence.prune(users)
