"""Connecting to a gateway: an invalid address is reported before the first attempt."""

from __future__ import annotations

import pytest

from chatserver.client.socket import open_socket
from chatserver.errors import ConfigError


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:8081", "ws://[::1", "ws://:x"])
async def test_invalid_gateway_address_is_a_config_error(url: str) -> None:
    """Errors of the WebSocket library do not reach the caller."""
    with pytest.raises(ConfigError, match="must be a gateway address"):
        async with open_socket(url):
            pass
