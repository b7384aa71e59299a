"""Session revocation on a running stack: ends logins and bans users."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver import config
from chatserver.domain.access.logins import Login
from chatserver.domain.clock import SystemClock
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.hot.bus.gateway_stream import GatewayStreamWriter
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.revocations import Revocations, SessionEnder
from chatserver.service.access.revocation import Revoker
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.stack import Stack


@contextlib.asynccontextmanager
async def open_revoking(stack: Stack) -> AsyncIterator[Revoker]:
    """Open the revocation use cases on the stores of a stack."""
    auth = config.Auth.model_validate({"secret": stack.secret})
    redis = config.Redis(url=stack.redis_url, call_timeout_s=20)
    async with open_hot(redis) as hot, open_dynamodb(stack.warm) as dynamodb:
        yield Revoker(
            accounts=AccountRows(dynamodb),
            revocations=Revocations(hot, auth.token_s_max),
            session_ender=SessionEnder(hot, GatewayStreamWriter(hot)),
            settings=auth,
            clock=SystemClock(),
        )


async def store_login(stack: Stack, user: str, login: str) -> None:
    """Store a login as created by a password login."""
    now = SystemClock().time()
    row = Login(user, login, None, int(now * 1000), int(now * 1000), "c2VlZA==", int(now) + 600)
    async with open_dynamodb(stack.warm) as dynamodb:
        await AccountRows(dynamodb).create_login(row)
