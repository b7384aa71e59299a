"""Connecting to a gateway: an invalid address is reported before the first attempt."""

from __future__ import annotations

import pytest

from chatserver.client.socket import open_socket
from chatserver.errors import ConfigError


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:8081", "ws://[::1", "ws://:x"])
async def test_address_that_is_none_is_refused_by_an_error_of_ours(url: str) -> None:
    """Nothing of the library's comes through."""
    with pytest.raises(ConfigError, match="must be a gateway address"):
        async with open_socket(url):
            pass
