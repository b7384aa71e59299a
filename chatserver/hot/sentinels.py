"""Finds the master that Sentinels watch over.

Sentinels choose a replica when the master does not answer. Whoever connects asks them where the
master is now, and that server whether it thinks so, too: for a moment the two may not agree.
A promoted replica has another replication id, so that a failover is another epoch, as a restart is.
"""

from __future__ import annotations

from chatserver import config
from chatserver.errors import ChatError, Unavailable
from chatserver.hot.connecting import Address, in_time, log_in, open_wire
from chatserver.hot.replies import call_on
from chatserver.hot.wire import Wire


async def find_master(address: Address, settings: config.Redis) -> Address:
    """Return where the master is, with the credentials of `address`.

    Guarantees:
        Cost: a connection to the first Sentinel that answers.

    Raises:
        Unavailable: no Sentinel answers, or none knows a master of that name.
    """
    why = ""
    for url in settings.sentinels:
        try:
            found = await _ask(Address(url), settings)
        except ChatError as exc:
            why = exc.message
            continue
        if found is not None:
            return address.at(*found)
        why = f"redis: the sentinel at {Address(url).name} knows no {settings.sentinel_master}"
    raise Unavailable(why)


async def _ask(sentinel: Address, settings: config.Redis) -> tuple[str, int] | None:
    wire = await open_wire(sentinel, settings)
    async with in_time(wire, settings):
        await log_in(wire, sentinel)
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.sentinel_master)
        found = await call_on(wire, *words)
    wire.abort("asked")
    return None if found is None else (found[0].decode(), int(found[1]))


async def require_master(wire: Wire) -> None:
    """Make sure that a server is no replica.

    Raises:
        Unavailable: it is one.
    """
    role, *_ = await call_on(wire, "ROLE")
    if role != b"master":
        raise Unavailable(f"redis at {wire.name}: is a replica; waiting for the new master")
