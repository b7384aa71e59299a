"""Which sessions a user has, over all gateways, so that there are not too many of them.

Data: ``{pN}:seen:<user>`` (hash), field ``s:<session>`` → ``<gateway> <device> <started ms>``;
entries of gateways that died are dropped when they are met. One device has one session, and a user
at most `sessions_max`: what a new one replaces is answered, and told to its gateway by the caller.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence

import structlog

from chatserver.domain.ids import DeviceId, GatewayId, SessionId, UserId
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script
from chatserver.hot.wire import Reply

log = structlog.get_logger()

CLAIM_BATCH_MAX = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A session that wants its place; `started_ms` 0: for the first time."""

    user: UserId
    session: SessionId
    device: DeviceId
    started_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Claimed:
    """When the session started, on Redis's clock, and the (session, gateway) that have to go."""

    started_ms: int
    replaced: tuple[tuple[SessionId, GatewayId], ...]


class Sessions:
    """The sessions of one gateway among those of all."""

    def __init__(
        self, hot: HotClient, gateway: GatewayId, sessions_max: int, keep_s: float
    ) -> None:
        self._hot = hot
        self._gateway = gateway
        self._sessions_max = sessions_max
        self._keep_s = keep_s

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        """Enter sessions; a claim may find that its own session is the one that has to go.

        Guarantees:
            Idempotent: entering a session again keeps its start.
            Order: of two claims on one device, in whatever order, the later start stays.
            Cost: one script call per partition and 200 claims.

        Raises:
            Unavailable: Redis does not answer; entered or not, the next claim tells.
        """
        keys, found = self._hot.keys, dict[SessionId, Claimed]()

        async def run(partition: int, group: list[Claim]) -> None:
            for start in range(0, len(group), CLAIM_BATCH_MAX):
                chunk = group[start : start + CLAIM_BATCH_MAX]
                reply = await self._hot.run(
                    load_script("claim"),
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
                at = 0
                for claim in chunk:
                    started, count = int(reply[at]), reply[at + 1]
                    names = [name.decode() for name in reply[at + 2 : at + 2 + 2 * count]]
                    pairs = zip(names[::2], names[1::2], strict=True)
                    replaced = tuple((SessionId(one), GatewayId(where)) for one, where in pairs)
                    found[claim.session] = Claimed(started, replaced)
                    at += 2 + 2 * count

        await asyncio.gather(*(run(*each) for each in self._by_partition(claims).items()))
        return [found[claim.session] for claim in claims]

    def _by_partition(self, claims: Sequence[Claim]) -> dict[int, list[Claim]]:
        groups: dict[int, list[Claim]] = {}
        for claim in claims:
            groups.setdefault(self._hot.keys.partition_of(claim.user), []).append(claim)
        return groups

    def release(self, user: UserId, session: SessionId) -> None:
        """Take a session out, soon. What is left in by a failure is replaced first of all."""
        on_reply = functools.partial(self._released, session)
        self._hot.send(on_reply, "HDEL", self._hot.keys.seen(user), f"s:{session}")

    def _released(self, session: SessionId, reply: Reply) -> None:
        if isinstance(reply, Exception):
            log.info("sessions.not_released", session=session, error=str(reply))
