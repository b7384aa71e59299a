"""What has been ended before its time, where every hello and every request looks.

Data: ``{pN}:revoked:<user>`` (hash), see `revoke.lua`; it lives as long as the tokens that it is
about, and as long as a ban. The directory has the same, and `workers.rpc` writes it here again when
a user is loaded into a Redis that is new (`chatserver.service.revoking`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chatserver.domain.ids import GatewayId, UserId
from chatserver.domain.logins import Claims, Marks
from chatserver.hot.client import HotClient
from chatserver.hot.mailbox import EndSessions, Postman
from chatserver.hot.scripts import load_script

READS_AT_ONCE_MAX = 500
SLACK_S = 60  # a token may be minted a little after its login was ended: its request was under way


class Revocations:
    """Writes and reads marks. `token_s_max`: how long any token holds, leeway included."""

    def __init__(self, hot: HotClient, token_s_max: int) -> None:
        self._hot = hot
        self._ttl_s = token_s_max + SLACK_S

    async def find(self, claims: Claims) -> Marks:
        """Return the marks that can concern a token.

        Guarantees:
            Order: as of this call among all calls on keys of the user's partition.
            Cost: one command.

        Raises:
            Unavailable: Redis does not answer.
        """
        fields = ["before", "banned"]
        if claims.login is not None:
            fields.append(f"s:{claims.login}")
        key = self._hot.keys.revoked(claims.user)
        before, banned, *ended = await self._hot.call("HMGET", key, *fields)
        logins = [claims.login] if claims.login is not None and ended[0] else []
        return Marks(int(before or 0), frozenset(logins), banned == b"1")

    async def find_all(self, user: UserId) -> Marks:
        """Return all marks of a user. Raises Unavailable."""
        found: list[bytes] = await self._hot.call("HGETALL", self._hot.keys.revoked(user))
        fields = dict(zip(found[::2], found[1::2], strict=True))
        logins = [name[2:].decode() for name in fields if name.startswith(b"s:")]
        return Marks(
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
        """Add marks; `is_banned` None leaves that as it is.

        Guarantees:
            Idempotent; only the ban can be taken back.

        Raises:
            Unavailable: they may be there, or not.
        """
        await self._hot.run(
            load_script("revoke"),
            {"revoked": self._hot.keys.revoked(user)},
            {
                "before": before,
                "banned": "" if is_banned is None else str(int(is_banned)),
                "ttl_s": self._ttl_s,
                "logins": ",".join(logins),
            },
        )


class SessionEnder:
    """Tells the gateways where a user has sessions that some of them are over."""

    def __init__(self, hot: HotClient, postman: Postman) -> None:
        self._hot = hot
        self._postman = postman

    async def end(self, user: UserId, marks: Marks, reason: str) -> None:
        """Have the sessions closed that these marks concern; call it when they are written.

        Guarantees:
            Whole: a session that begins meanwhile finds the marks itself (it looks after it has
            said where it is), so none is passed over.

        Raises:
            Unavailable: some gateway may not have been told; try again.
        """
        for gateway in await self._gateways_of(user):
            record = EndSessions(user, list(marks.logins), marks.before, marks.is_banned, reason)
            self._postman.post(gateway, record)
        await self._postman.posted()

    async def _gateways_of(self, user: UserId) -> Sequence[GatewayId]:
        # Those of whom it has expired, too: their sessions may be about to say it again.
        names = await self._hot.call("ZRANGE", self._hot.keys.online(user), 0, -1)
        return [GatewayId(name.decode()) for name in names]
