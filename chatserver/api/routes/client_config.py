"""Configuration that the web client needs before it can connect."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.security import ANYONE
from chatserver.config import Settings


class ClientConfig(msgspec.Struct, frozen=True):
    """Gateway address and available login methods.

    `demo_users` is empty if a real login is required. `local_accounts`: users log in with a
    password. `registration`: users may create accounts themselves.

    `file_bytes_max`: maximum size of an uploaded file.

    `push_key`: public key for browser push subscriptions, base64url; null if push is disabled.
    """

    gateway_url: str
    demo_users: list[str]
    push_key: str | None
    file_bytes_max: int
    local_accounts: bool = True
    registration: bool = True


def build_client_config_route(settings: Settings) -> HTTPRouteHandler:
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
        """Return the configuration of the web client."""
        return config

    return get_client_config
