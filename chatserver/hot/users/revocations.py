"""Revocation of logins, tokens and users; checked for every `hello` and every API request.

Data: ``{pN}:revoked:<user>`` (hash), see `revoke_tokens.lua`. It expires with the affected tokens,
but not while the user is banned. The `directory` table has the same data; in a new epoch, it is
loaded with the user (`chatserver.service.access.revocation`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chatserver.domain.access.logins import Claims, RevocationMarks
from chatserver.domain.ids import GatewayId, UserId
from chatserver.hot.bus.gateway_stream import EndSessions, GatewayStreamWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

# Revocations are kept for the token lifetime plus this time: a request in progress can issue a
# token after its login is revoked.
SLACK_S = 60


class Revocations:
    """Reads and writes revocations (`RevocationMarks`).

    `token_s_max`: maximum lifetime of a token in seconds, including leeway.
    """

    def __init__(self, hot: HotClient, token_s_max: int) -> None:
        self._hot = hot
        self._ttl_s = token_s_max + SLACK_S

    async def find(self, claims: Claims) -> RevocationMarks:
        """Return the user's revocations that may apply to the token with `claims`.

        Guarantees:
            Order: Redis runs the calls for one partition in call order.
            Cost: one command.

        Raises:
            Unavailable: Redis does not respond.
        """
        fields = ["before", "banned"]
        if claims.login is not None:
            fields.append(f"s:{claims.login}")
        key = self._hot.keys.revoked(claims.user)
        before, banned, *ended = await self._hot.call("HMGET", key, *fields)
        logins = [claims.login] if claims.login is not None and ended[0] else []
        return RevocationMarks(int(before or 0), frozenset(logins), banned == b"1")

    async def find_all(self, user: UserId) -> RevocationMarks:
        """Return all revocations of the user. Raises Unavailable."""
        marks: list[bytes] = await self._hot.call("HGETALL", self._hot.keys.revoked(user))
        fields = dict(zip(marks[::2], marks[1::2], strict=True))
        logins = [name[2:].decode() for name in fields if name.startswith(b"s:")]
        return RevocationMarks(
            int(fields.get(b"before", 0)), frozenset(logins), fields.get(b"banned") == b"1"
        )

    async def put(
        self,
        user: UserId,
        *,
        before: int = 0,
        logins: Collection[str] = (),
        is_banned: bool | None = None,
    ) -> None:
        """Add revocations. If `is_banned` is None, the ban is unchanged.

        Guarantees:
            Idempotent; only a ban can be removed again.

        Raises:
            Unavailable: the revocations may have been written.
        """
        await self._hot.run(
            load_script("revoke_tokens"),
            {"revoked": self._hot.keys.revoked(user)},
            {
                "before": before,
                "banned": "" if is_banned is None else str(int(is_banned)),
                "ttl_s": self._ttl_s,
                "logins": ",".join(logins),
            },
        )


class SessionEnder:
    """Notifies a user's gateways that sessions have been revoked."""

    def __init__(self, hot: HotClient, gateway_stream_writer: GatewayStreamWriter) -> None:
        self._hot = hot
        self._gateway_stream_writer = gateway_stream_writer

    async def end(self, user: UserId, marks: RevocationMarks, reason: str) -> None:
        """Close the user's sessions that `marks` revoke. Call `Revocations.put` first.

        Guarantees:
            Complete: no session is missed; a session that starts during the call reads the
                revocations itself.

        Raises:
            Unavailable: a gateway may not have been notified; try again.
        """
        for gateway in await self._list_gateways(user):
            record = EndSessions(user, list(marks.logins), marks.before, marks.is_banned, reason)
            self._gateway_stream_writer.send(gateway, record)
        await self._gateway_stream_writer.wait_written()

    async def _list_gateways(self, user: UserId) -> Sequence[GatewayId]:
        # Include gateways whose expiry has passed: they may be about to extend it.
        names = await self._hot.call("ZRANGE", self._hot.keys.online(user), 0, -1)
        return [GatewayId(name.decode()) for name in names]
