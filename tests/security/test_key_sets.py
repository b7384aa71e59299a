"""Keys by URL: fetched by those who may, kept for all, renewed, and never asked for too often."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from chatserver import config
from chatserver.auth.host_keys import parse_jwks
from chatserver.auth.tokens import Tokens
from chatserver.domain.clock import SystemClock
from chatserver.errors import Unauthenticated, Unavailable
from chatserver.hot.key_sets import KeySets
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.revocations import Revocations
from chatserver.outbound.document_fetch import fetch_document
from chatserver.outbound.http_client import open_outbound
from chatserver.service.access.host_keyring import KeyFetcher, KeyRing
from chatserver.service.access.token_authentication import TokenAuthentication
from tests.security.support.tokens import EC, ED, OURS, KeyServer, jwk, key_set, signed


@pytest.fixture
async def key_server() -> AsyncIterator[KeyServer]:
    """A server of keys on loopback."""
    made = KeyServer()
    async with await asyncio.start_server(made.talk, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        yield made


class Door:
    """A process: its keys, and who may come in."""

    def __init__(
        self, hot: HotClient, auth: config.Auth, get: Callable[[], Awaitable[bytes]]
    ) -> None:
        tokens = Tokens(auth, SystemClock())
        self.ring = KeyRing(
            settings=auth,
            cache=KeySets(hot),
            fetch=get,
            activate=tokens.use_key_set,
            clock=SystemClock(),
        )
        self.entrance = TokenAuthentication(tokens, Revocations(hot, auth.token_s_max), self.ring)


def settings(url: str, **more: int) -> config.Auth:
    return config.Auth.model_validate(
        {
            "secret": OURS,
            "local_accounts": False,
            "host_algorithm": "EdDSA",
            "host_jwks_url": url,
            **more,
        }
    )


@contextlib.asynccontextmanager
async def open_fetcher(
    hot: HotClient, auth: config.Auth, *, allowed: str = "127.0.0.0/8"
) -> AsyncIterator[KeyFetcher]:
    """The outbound client, as `workers.rpc` and the API have it."""
    async with open_outbound(config.Outbound(allow_private=[allowed])) as outbound:
        yield KeyFetcher(
            settings=auth,
            cache=KeySets(hot),
            fetch=functools.partial(fetch_document, outbound),
            check=functools.partial(parse_jwks, algorithm="EdDSA"),
            clock=SystemClock(),
        )


@pytest.mark.constants({"chatserver.service.access.host_keyring.JWKS_REFETCH_S": 1})
async def test_key_that_is_rotated_in_is_found_and_made_up_names_cost_nothing(
    redis_url: str, key_server: KeyServer
) -> None:
    """A new key is fetched when its first token comes; a flood of made-up names asks once."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with (
        open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot,
        open_fetcher(hot, auth) as fetcher,
    ):
        door, began = Door(hot, auth, fetcher.get), time.monotonic()

        assert (await door.entrance.authenticate(signed(ED, "EdDSA", None, kid="k1"))).user == "zoe"
        for number in range(50):
            with pytest.raises(Unauthenticated):
                await door.entrance.authenticate(signed(ED, "EdDSA", None, kid=f"made-up-{number}"))

        # One for each second that it took, and one for the key that there is.
        assert key_server.count <= 2 + (time.monotonic() - began)


async def test_gateway_takes_keys_that_others_fetched(
    redis_url: str, key_server: KeyServer
) -> None:
    """A process that may not call outside reads the copy, and asks those who may."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"), jwk(EC, "other"))
    asked = 0
    async with (
        open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot,
        open_fetcher(hot, auth) as fetcher,
    ):

        async def ask_worker() -> bytes:
            nonlocal asked
            asked += 1
            return await fetcher.get()

        first, second = Door(hot, auth, ask_worker), Door(hot, auth, ask_worker)
        token = signed(ED, "EdDSA", None, kid="k1")
        assert (await first.entrance.authenticate(token)).user == "zoe"
        assert (await second.entrance.authenticate(token)).user == "zoe"

        assert (asked, key_server.count) == (1, 1)


async def test_api7_key_set_at_a_private_address_is_not_fetched(
    redis_url: str, key_server: KeyServer
) -> None:
    """The URL is the operator's, and still does not reach into the machine unless allowed."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with (
        open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot,
        open_fetcher(hot, auth, allowed="192.0.2.0/24") as fetcher,
    ):
        with pytest.raises(Unavailable):
            await fetcher.get()

    assert key_server.count == 0


@pytest.mark.constants({"chatserver.service.access.host_keyring.JWKS_REFETCH_S": 1})
async def test_bad_key_set_replaces_no_good_one(redis_url: str, key_server: KeyServer) -> None:
    """An error page at the URL locks nobody out."""
    auth = settings(key_server.url)
    key_server.body = key_set(jwk(ED, "k1"))
    async with (
        open_hot(config.Redis(url=redis_url, call_timeout_s=20)) as hot,
        open_fetcher(hot, auth) as fetcher,
    ):
        good = await fetcher.get()
        key_server.body = b"<html>moved</html>"
        await hot.call("DEL", hot.keys.jwks_fetching())

        assert await fetcher.get() == good
        assert key_server.count == 2
