"""The host's hand in tests: ends logins and bans users of a running stack."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver import config
from chatserver.domain.clock import SystemClock
from chatserver.domain.logins import Login
from chatserver.hot.client import open_hot
from chatserver.hot.mailbox import Postman
from chatserver.hot.revocations import Revocations, SessionEnder
from chatserver.service.revoking import Revoking
from chatserver.warm.accounts import AccountRows
from chatserver.warm.client import open_dynamodb
from tests.support.stack import Stack


@contextlib.asynccontextmanager
async def open_revoking(stack: Stack) -> AsyncIterator[Revoking]:
    """The use cases, on the stores of a stack."""
    auth = config.Auth.model_validate({"secret": stack.secret})
    redis = config.Redis(url=stack.redis_url, call_timeout_s=20)
    async with open_hot(redis) as hot, open_dynamodb(stack.warm) as dynamodb:
        yield Revoking(
            AccountRows(dynamodb, stack.warm),
            Revocations(hot, auth.token_s_max),
            SessionEnder(hot, Postman(hot)),
            auth,
            SystemClock(),
        )


async def store_login(stack: Stack, user: str, login: str) -> None:
    """Store a login, as a log in with a password does."""
    now = SystemClock().time()
    row = Login(user, login, None, int(now * 1000), int(now * 1000), "c2VlZA==", int(now) + 600)
    async with open_dynamodb(stack.warm) as dynamodb:
        await AccountRows(dynamodb, stack.warm).create_login(row)
