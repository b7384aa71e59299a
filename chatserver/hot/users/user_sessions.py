"""User sessions: each user's sessions across all gateways.

Data: ``{pN}:seen:<user>`` (hash), field ``s:<session>`` → ``<gateway> <device> <started ms>``. A
device has one session, and a user at most `sessions_max`. `claim` deletes the sessions of dead
gateways, and returns the sessions that it replaces; the caller notifies their gateways.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence

import attrs
import structlog

from chatserver.domain.ids import DeviceId, GatewayId, SessionId, UserId
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.scripts import load_script

log = structlog.get_logger()

CLAIM_BATCH_MAX = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A request to register a session. `started_ms` is 0 if the session is not registered yet."""

    user: UserId
    session: SessionId
    device: DeviceId
    started_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Claimed:
    """The session's start by the Redis clock, and each replaced session as `(session, gateway)`."""

    started_ms: int
    replaced: tuple[tuple[SessionId, GatewayId], ...]


@attrs.define(eq=False, repr=False, kw_only=True)
class UserSessions:
    """Registers the sessions of one gateway."""

    _hot: HotClient
    _gateway: GatewayId
    _sessions_max: int
    _keep_s: float

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        """Register sessions.

        A session in `claims` may itself be replaced, and is then in the result.

        Guarantees:
            Idempotent: registering a session again keeps its start time.
            Order: of two sessions on one device, the session that started later wins.
            Cost: one script call per 200 claims of a partition.

        Raises:
            Unavailable: Redis does not respond. Sessions may have been registered; repeat the call.
        """
        keys, claimed = self._hot.keys, dict[SessionId, Claimed]()
        groups = keys.group_by_partition(claims, lambda claim: claim.user)

        async def run(partition: int, group: list[Claim]) -> None:
            for start in range(0, len(group), CLAIM_BATCH_MAX):
                chunk = group[start : start + CLAIM_BATCH_MAX]
                reply = await self._hot.run(
                    load_script("register_sessions"),
                    {"gateways": keys.gateways(partition)},
                    {
                        "gateway": self._gateway,
                        "sessions_max": self._sessions_max,
                        "ttl_ms": int(self._keep_s * 1000),
                    },
                    [
                        {
                            "seen": keys.seen(claim.user),
                            "session": claim.session,
                            "device": claim.device,
                            "started": claim.started_ms,
                        }
                        for claim in chunk
                    ],
                )
                index = 0
                for claim in chunk:
                    started, count = int(reply[index]), reply[index + 1]
                    names = [name.decode() for name in reply[index + 2 : index + 2 + 2 * count]]
                    pairs = zip(names[::2], names[1::2], strict=True)
                    replaced = tuple(
                        (SessionId(session), GatewayId(gateway)) for session, gateway in pairs
                    )
                    claimed[claim.session] = Claimed(started, replaced)
                    index += 2 + 2 * count

        await asyncio.gather(*(run(*group) for group in groups.items()))
        return [claimed[claim.session] for claim in claims]

    def release(self, user: UserId, session: SessionId) -> None:
        """Remove a session without waiting for Redis.

        If this fails, the session stays registered until another one replaces it.
        """
        on_reply = functools.partial(self._on_released, session)
        self._hot.send(on_reply, "HDEL", self._hot.keys.seen(user), f"s:{session}")

    def _on_released(self, session: SessionId, reply: Reply) -> None:
        if isinstance(reply, Exception):
            log.info("sessions.release_failed", session=session, error=str(reply))
