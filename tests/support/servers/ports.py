"""Ports for the servers of tests; each port is used by only one test process."""

from __future__ import annotations

import functools
import os
import secrets

from chatserver.dev.ports import is_port_free

# Below the kernel's range of ephemeral ports. A client that connects to a port of that range while
# its server is down may be connected to itself on loopback.
_PORTS = range(15_000, 32_000)
_given: set[int] = set()


@functools.cache
def _own_ports() -> list[int]:
    """Return this process's share of the ports; parallel test processes use the others."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    # Blocks of a hundred, so that each share covers the whole range.
    return [port for port in _PORTS if port // 100 % count == number]


def free_port(count: int = 1) -> int:
    """Return a free loopback port that this run has not used.

    With `count`, the first of that many consecutive free ports.
    """
    for _ in range(10_000):
        first = secrets.choice(_own_ports())
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(is_port_free, ports)):
            _given.update(ports)
            return first
    raise AssertionError(f"no {count} free ports of {_PORTS} are left")
