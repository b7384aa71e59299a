"""What the web client must know before it can connect."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.security import ANYONE
from chatserver.config import Settings


class ClientConfig(msgspec.Struct, frozen=True):
    """Where the gateway is, and the ways in.

    `demo_users` is empty wherever people must really log in. `local_accounts`: they do it with a
    password; `registration`: they may make accounts themselves.

    `file_bytes_max`: larger files need not be offered.

    `push_key` is what browsers subscribe to pushes with, base64url; null: there are none.
    """

    gateway_url: str
    demo_users: list[str]
    push_key: str | None
    file_bytes_max: int
    local_accounts: bool = True
    registration: bool = True


def client_config_route(settings: Settings) -> HTTPRouteHandler:
    """Return ``GET /v1/client-config``."""
    api, auth = settings.api, settings.auth
    config = ClientConfig(
        api.gateway_url,
        list(api.demo_users),
        settings.notify.vapid_public or None,
        settings.attachments.size_bytes_max,
        auth.local_accounts,
        auth.local_accounts and auth.registration == "open",
    )

    @get("/v1/client-config", opt={"rule": ANYONE})
    async def get_client_config() -> ClientConfig:
        """Tell where the gateway is."""
        return config

    return get_client_config
