"""Ports of `chatserver dev`, and checks for free ports on this machine."""

from __future__ import annotations

import dataclasses
import socket

from chatserver.errors import ConfigError

PAGE_PORT = 8080
GATEWAY_PORT = 8081
REDIS_PORT = 16379
DYNAMODB_PORT = 18000
S3_PORT = 19000


def is_port_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Accept a port whose last connection is in TIME_WAIT, as the servers do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def find_free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now, chosen by the system."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """Ports of all servers, always on loopback."""

    page: int
    gateway: int
    redis: int
    dynamodb: int
    s3: int

    def check(self) -> None:
        """Check that all ports are free and different.

        Raises:
            ConfigError: a port is in use or used twice; the error lists all such ports.
        """
        flags = {"page": "--port", "gateway": "--gateway-port", "redis": "--redis-port"}
        flags |= {"dynamodb": "--dynamodb-port", "s3": "--s3-port"}
        problems = []
        names_by_port: dict[int, str] = {}
        for name, flag in flags.items():
            port = getattr(self, name)
            if port in names_by_port:
                problems.append(
                    f"port {port} is used twice ({names_by_port[port]}, {name}): change {flag}"
                )
            elif not is_port_free(port):
                problems.append(
                    f"port {port} ({name}) is in use: stop the process that uses it, or "
                    f"choose another port with {flag}"
                )
            names_by_port.setdefault(port, name)
        if problems:
            raise ConfigError(*problems)
