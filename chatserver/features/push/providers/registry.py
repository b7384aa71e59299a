"""Creation of the push providers that are enabled in the settings."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.errors import ConfigError
from chatserver.features.push.model import Kind
from chatserver.features.push.providers.apns import Apns, check_apns, is_apns_configured
from chatserver.features.push.providers.fcm import Fcm, ServiceAccount
from chatserver.features.push.providers.interface import TIMEOUT_S, TTL_S, Provider
from chatserver.features.push.providers.vapid import VapidSigner, check_vapid_pair
from chatserver.features.push.providers.webpush import WebPush
from chatserver.features.push.settings import Notify
from chatserver.outbound.http2_client import open_http2
from chatserver.outbound.http_client import open_outbound

FCM_URL = "https://fcm.googleapis.com"


def check_providers(settings: Notify) -> None:
    """Check the settings of all push providers.

    Raises:
        ConfigError: lists all problems.
    """
    problems: list[str] = []
    try:
        if private := settings.vapid_private.get_secret_value():
            check_vapid_pair(private, settings.vapid_public, settings.subject)
    except ConfigError as exc:
        problems += exc.problems
    try:
        if account := settings.fcm_account.get_secret_value():
            ServiceAccount(account)
    except ConfigError as exc:
        problems += exc.problems
    try:
        if is_apns_configured(settings):
            check_apns(settings)
    except ConfigError as exc:
        problems += exc.problems
    if problems:
        raise ConfigError(*problems)


@contextlib.asynccontextmanager
async def open_providers(settings: Settings, clock: Clock) -> AsyncIterator[dict[Kind, Provider]]:
    """Open the push providers that have a key in the settings.

    Raises:
        ConfigError: a key is invalid.
    """
    notify = settings.get(Notify)
    check_providers(notify)
    providers: dict[Kind, Provider] = {}
    async with contextlib.AsyncExitStack() as stack:
        outbound = await stack.enter_async_context(open_outbound(settings.outbound))
        if private := notify.vapid_private.get_secret_value():
            signer = VapidSigner(private, notify.subject, clock)
            providers["web"] = WebPush(
                outbound=outbound, signer=signer, timeout_s=TIMEOUT_S, ttl_s=TTL_S
            )
        if account := notify.fcm_account.get_secret_value():
            providers["fcm"] = Fcm(
                outbound=outbound,
                account=ServiceAccount(account),
                clock=clock,
                url=FCM_URL,
                timeout_s=TIMEOUT_S,
                ttl_s=TTL_S,
            )
        if is_apns_configured(notify):
            server = await stack.enter_async_context(open_http2(notify.apns_url, settings.outbound))
            providers["apns"] = Apns(server, notify, clock)
        yield providers
