"""Ports of `chatserver dev`, checked before anything starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from chatserver.dev.ports import Ports
from chatserver.errors import ConfigError
from tests.support.servers.processes import free_port


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_error_for_port_in_use_names_its_purpose_and_option(busy_port: int) -> None:
    """The message says what is wrong and what to do."""
    gateway, redis, dynamodb, s3 = (free_port() for _ in range(4))
    with pytest.raises(ConfigError) as caught:
        Ports(page=busy_port, gateway=gateway, redis=redis, dynamodb=dynamodb, s3=s3).check()

    assert caught.value.problems == [
        f"port {busy_port} (page) is in use: stop the process that uses it, or "
        "choose another port with --port"
    ]


def test_port_used_twice_is_refused() -> None:
    """The conflict is reported before anything starts."""
    with pytest.raises(ConfigError, match=r"is used twice \(page, s3\): change --s3-port"):
        Ports(page=31080, gateway=31081, redis=31082, dynamodb=31083, s3=31080).check()
