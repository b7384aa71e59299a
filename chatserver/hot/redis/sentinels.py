"""Master discovery through Redis Sentinel.

Before each connection, the client queries the Sentinels for the master's address. It then checks
the server's role, because the address may be outdated. A promoted replica has another replication
id, so a failover changes the epoch.
"""

from __future__ import annotations

from chatserver import config
from chatserver.errors import REDIS_DOWN, ChatError, Unavailable
from chatserver.hot.redis.connection_setup import (
    RedisAddress,
    handshake_deadline,
    log_in,
    open_connection,
)
from chatserver.hot.redis.pipelined_connection import PipelinedConnection
from chatserver.hot.redis.replies import call_on


async def find_master(address: RedisAddress, settings: config.Redis) -> RedisAddress:
    """Return the master's address, with the credentials of `address`.

    Guarantees:
        Cost: a connection to the first Sentinel that responds.

    Raises:
        Unavailable: no Sentinel responds, or none knows a master with the configured name.
    """
    reason = ""
    for url in settings.sentinels:
        try:
            master = await _query_sentinel(RedisAddress(url), settings)
        except ChatError as exc:
            reason = exc.message
            continue
        if master is not None:
            return address.at(*master)
        name = settings.sentinel_master
        reason = f"redis: the Sentinel at {RedisAddress(url).name} has no master named {name}"
    raise Unavailable(reason, public=REDIS_DOWN)


async def _query_sentinel(sentinel: RedisAddress, settings: config.Redis) -> tuple[str, int] | None:
    wire = await open_connection(sentinel, settings)
    async with handshake_deadline(wire, settings):
        await log_in(wire, sentinel)
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.sentinel_master)
        reply = await call_on(wire, *words)
    wire.abort("the query is complete")
    return None if reply is None else (reply[0].decode(), int(reply[1]))


async def require_master(wire: PipelinedConnection) -> None:
    """Check that the server is a master.

    Raises:
        Unavailable: the server is a replica.
    """
    role, *_ = await call_on(wire, "ROLE")
    if role != b"master":
        raise Unavailable(
            f"redis at {wire.name}: is a replica; waiting for the new master", public=REDIS_DOWN
        )
