"""Key sets by URL: fetched by the worker, cached in Redis, refreshed, and rate limited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from chatserver import config
from chatserver.auth.access_tokens import Tokens
from chatserver.auth.host_keys import parse_jwks
from chatserver.domain.clock import SystemClock
from chatserver.errors import Unauthenticated, Unavailable
from chatserver.hot.jwks_cache import JwksCache
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.revocations import Revocations
from chatserver.outbound.http_client import fetch_document, open_outbound
from chatserver.service.access.host_keyring import HostKeyring, KeyFetcher
from chatserver.service.access.token_authentication import TokenAuthentication
from tests.security.support.tokens import EC, ED, SERVER_SECRET, KeyServer, jwk, key_set, signed


@pytest.fixture
async def key_server() -> AsyncIterator[KeyServer]:
    """A key server on loopback."""
    made = KeyServer()
    async with await asyncio.start_server(made.handle, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        yield made


class Process:
    """A process with a key ring and token authentication."""

    def __init__(
        self, hot: HotClient, auth: config.Auth, get: Callable[[], Awaitable[bytes]]
    ) -> None:
        tokens = Tokens(auth, SystemClock())
        self.ring = HostKeyring(
            settings=auth,
            cache=JwksCache(hot),
            fetch=get,
            activate=tokens.replace_key_set,
            clock=SystemClock(),
        )
        self.authentication = TokenAuthentication(
            tokens, Revocations(hot, auth.token_s_max), self.ring
        )


def settings(url: str, **more: int) -> config.Auth:
    return config.Auth.model_validate(
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "EdDSA",
            "host_jwks_url": url,
            **more,
        }
    )


@contextlib.asynccontextmanager
async def open_fetcher(
    redis_url: str, auth: config.Auth, *, allowed: str = "127.0.0.0/8"
) -> AsyncIterator[tuple[HotClient, KeyFetcher]]:
    """Open a client and the fetcher of `workers.rpc` and the API."""
    async with (
        open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot,
        open_outbound(config.Outbound(allow_private=[allowed])) as outbound,
    ):
        yield (
            hot,
            KeyFetcher(
                settings=auth,
                cache=JwksCache(hot),
                fetch=functools.partial(fetch_document, outbound),
                check=functools.partial(parse_jwks, algorithm="EdDSA"),
                clock=SystemClock(),
            ),
        )


@pytest.mark.constants({"chatserver.service.access.host_keyring.JWKS_REFETCH_S": 1})
async def test_rotated_key_is_fetched_and_unknown_key_ids_are_rate_limited(
    redis_url: str, key_server: KeyServer
) -> None:
    """A new key is fetched with its first token. Unknown key ids cause one fetch per second."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with open_fetcher(redis_url, auth) as (hot, fetcher):
        process, started = Process(hot, auth, fetcher.get), time.monotonic()

        assert (
            await process.authentication.authenticate(signed(ED, "EdDSA", None, kid="k1"))
        ).user == "zoe"
        for number in range(50):
            with pytest.raises(Unauthenticated):
                await process.authentication.authenticate(
                    signed(ED, "EdDSA", None, kid=f"unknown-{number}")
                )

        # One fetch for each second of the test, and one for the existing key.
        assert key_server.count <= 2 + (time.monotonic() - started)


async def test_gateway_uses_the_key_set_fetched_by_a_worker(
    redis_url: str, key_server: KeyServer
) -> None:
    """Gateways make no outbound requests: they read the copy in Redis or ask the worker."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"), jwk(EC, "other"))
    calls = 0
    async with open_fetcher(redis_url, auth) as (hot, fetcher):

        async def call_worker() -> bytes:
            nonlocal calls
            calls += 1
            return await fetcher.get()

        first, second = Process(hot, auth, call_worker), Process(hot, auth, call_worker)
        token = signed(ED, "EdDSA", None, kid="k1")
        assert (await first.authentication.authenticate(token)).user == "zoe"
        assert (await second.authentication.authenticate(token)).user == "zoe"

        assert (calls, key_server.count) == (1, 1)


async def test_api7_key_set_at_a_private_address_is_not_fetched(
    redis_url: str, key_server: KeyServer
) -> None:
    """Private addresses must be allowed explicitly, also for URLs set by the operator."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with open_fetcher(redis_url, auth, allowed="192.0.2.0/24") as (_, fetcher):
        with pytest.raises(Unavailable):
            await fetcher.get()

    assert key_server.count == 0


@pytest.mark.constants({"chatserver.service.access.host_keyring.JWKS_REFETCH_S": 1})
async def test_invalid_key_set_does_not_replace_a_valid_one(
    redis_url: str, key_server: KeyServer
) -> None:
    """An error page at the URL does not prevent logins."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with open_fetcher(redis_url, auth) as (hot, fetcher):
        good = await fetcher.get()
        key_server.body = b"<html>moved</html>"
        await hot.call("DEL", hot.keys.jwks_fetching())

        assert await fetcher.get() == good
        assert key_server.count == 2
