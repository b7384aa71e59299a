"""Creation of the push providers that are enabled in the settings."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.errors import ConfigError
from chatserver.features.push.model import Kind
from chatserver.features.push.providers.apns import Apns, check_apns, is_apns_configured
from chatserver.features.push.providers.fcm import Fcm, ServiceAccount
from chatserver.features.push.providers.interface import PushProvider
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

    def check_vapid() -> None:
        if private := settings.vapid_private.get_secret_value():
            check_vapid_pair(private, settings.vapid_public, settings.subject)

    def check_fcm() -> None:
        if account := settings.fcm_account.get_secret_value():
            ServiceAccount(account)

    problems: list[str] = []
    for check in (check_vapid, check_fcm, functools.partial(check_apns, settings)):
        try:
            check()
        except ConfigError as exc:
            problems += exc.problems
    if problems:
        raise ConfigError(*problems)


@contextlib.asynccontextmanager
async def open_providers(
    settings: Settings, clock: Clock
) -> AsyncIterator[dict[Kind, PushProvider]]:
    """Open the push providers that have a key in the settings.

    Raises:
        ConfigError: a key is invalid.
    """
    notify = settings.get(Notify)
    check_providers(notify)
    providers: dict[Kind, PushProvider] = {}
    async with contextlib.AsyncExitStack() as stack:
        outbound = await stack.enter_async_context(open_outbound(settings.outbound))
        if private := notify.vapid_private.get_secret_value():
            signer = VapidSigner(private, notify.subject, clock)
            providers["web"] = WebPush(outbound=outbound, signer=signer)
        if account := notify.fcm_account.get_secret_value():
            providers["fcm"] = Fcm(
                outbound=outbound,
                account=ServiceAccount(account),
                clock=clock,
                url=FCM_URL,
            )
        if is_apns_configured(notify):
            server = await stack.enter_async_context(open_http2(notify.apns_url, settings.outbound))
            providers["apns"] = Apns(server, notify, clock)
        yield providers
