"""Users of the load generator: tokens, sessions, and direct chats between two of them."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import SecretStr

from chatserver.auth.tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from tests.load.connection import Tally
from tests.load.pair import Pair
from tests.load.session import Session
from tests.load.stack import Stack

AnySession = TypeVar("AnySession", bound=Session)

_AT_ONCE = 32  # set-ups under way: opening a chat costs the warm tier several calls
_TOKEN_LIFETIME_S = 3000


async def open_sessions(
    stack: Stack,
    users: list[str],
    tally: Tally,
    kind: type[AnySession] = Session,  # type: ignore[assignment]  # the default of a type variable
) -> list[AnySession]:
    """Return an authenticated session of each user."""
    gate = asyncio.Semaphore(_AT_ONCE)
    tokens = Tokens(Auth(secret=SecretStr(stack.secret)), SystemClock())

    async def open_one(user: str) -> AnySession:
        async with gate:
            session = kind(user, tally)
            await session.connect(stack.gateway.port, "chat.v1")
            await session.hello(tokens.mint(UserId(user), _TOKEN_LIFETIME_S))
            return session

    return list(await asyncio.gather(*map(open_one, users)))


async def open_pairs(stack: Stack, count: int, frame_bytes: int, tally: Tally) -> list[Pair]:
    """Return pairs of users with a direct chat open and nothing said yet."""
    senders = await open_sessions(stack, [f"s{n:05}" for n in range(count)], tally)
    receivers = await open_sessions(stack, [f"r{n:05}" for n in range(count)], tally)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def open_chat(pair: Pair) -> None:
        async with gate:
            answer = await pair.sender.request("open_direct", user=pair.receiver.user)
            if answer["type"] != "ok":
                raise RuntimeError(f"open_direct: {answer}")
            pair.use_chat(answer["chat"]["chat"], frame_bytes)

    pairs = [Pair(s, r, tally) for s, r in zip(senders, receivers, strict=True)]
    await asyncio.gather(*map(open_chat, pairs))
    # The opening itself is an event in both inboxes; it has come before the pong.
    await asyncio.gather(*(s.ping() for s in (*senders, *receivers)))
    return pairs
