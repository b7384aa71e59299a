"""Translation of AWS SDK errors for calls without a response.

Error responses are translated by each service's adapter (`chatserver.warm.dynamo.client`,
`chatserver.cold.client`).
"""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
)

from chatserver.config.section import is_loopback
from chatserver.errors import ChatError, ConfigError, Unavailable

_NOT_CONNECTED = (
    EndpointConnectionError,
    ConnectTimeoutError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
)


def translate_no_response(exc: Exception, endpoint: str, section: str, *, public: str) -> ChatError:
    """Return the `ChatError` for a call that got no response.

    `section` names the settings section that configures the service; `public` is the text for
    clients.
    """
    variable = f"CHAT_{section.upper()}"
    if isinstance(exc, NoCredentialsError | PartialCredentialsError):
        return ConfigError(
            f"{endpoint}: {exc}: set {section}.access_key and {section}.secret_key "
            f"({variable}_ACCESS_KEY, {variable}_SECRET_KEY), or assign the process an AWS role"
        )
    if isinstance(exc, _NOT_CONNECTED):
        is_local = is_loopback(urlsplit(endpoint.rpartition(" ")[2]).hostname or "")
        advice = "start one with `chatserver dev`, or set" if is_local else "check the network and"
        return Unavailable(
            f"{endpoint}: no server at this address; {advice} {section}.endpoint "
            f"({variable}_ENDPOINT)",
            public=public,
        )
    return Unavailable(f"{endpoint}: {type(exc).__name__}: {exc}", public=public)
