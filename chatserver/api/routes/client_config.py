"""Configuration that the web client needs before it can connect."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import ANYONE
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
    values: dict[str, Any] = {"push_key": None, "file_bytes_max": 0}
    for section in settings.features:
        values |= section.get_client_config()
    config = ClientConfig(
        gateway_url=api.gateway_url,
        demo_users=list(api.demo_users),
        local_accounts=auth.local_accounts,
        registration=auth.local_accounts and auth.registration == "open",
        **values,
    )

    @get("/v1/client-config", opt={"rule": ANYONE})
    async def get_client_config() -> ClientConfig:
        """Return the configuration of the web client."""
        return config

    return get_client_config
