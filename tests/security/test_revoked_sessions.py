"""Revoked sessions end on every gateway (rows 1 and 22)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from chatserver.client import ChatClient, token_renewal
from chatserver.client.events import Disconnected
from chatserver.dev.servers import Server
from chatserver.domain.ids import UserId
from chatserver.service.access.revocation import Revoker
from tests.security.support.revocation import open_revoking, store_login
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack
from tests.support.wire import Ended, RawSocket

UNAUTHENTICATED, BANNED = 3500, 3502


@pytest.fixture
async def revoking(stack: Stack) -> AsyncIterator[Revoker]:
    """The revocation use cases on the stack."""
    async with open_revoking(stack) as made:
        yield made


@pytest.fixture(scope="session")
def second_gateway(stack: Stack) -> Server:
    """A second gateway of the stack."""
    return stack.start_gateway()


def code_of(chat: RawChat) -> int:
    """Return the code of the close frame that a device received."""
    assert chat.close_frame is not None
    return int.from_bytes(chat.close_frame.payload[:2], "big")


async def wait_for_close(chat: RawChat) -> int:
    """Wait until a device's connection is closed; return the close code."""
    await asyncio.wait_for(chat.ended.wait(), 30)
    return code_of(chat)


def device_with(stack: Stack, user: str, port: int, token: str, device: str) -> RawChat:
    """Return a device with this token."""
    return RawChat(user, port, lambda _: token, device=device)


async def test_row_01_revoked_user_is_disconnected_from_all_gateways(
    stack: Stack, second_gateway: Server, revoking: Revoker, new_name: NewName
) -> None:
    """After revoking a user, all sockets are closed and no old token is accepted."""
    user, token = new_name("eve"), ""
    token = stack.token(user)
    chats = [
        await device_with(stack, user, port, token, f"d{n}").start()
        for n, port in enumerate((stack.port, second_gateway.port))
    ]

    await revoking.end_all(UserId(user), "logged out on all devices")

    # The tokens are valid for an hour, so they have not expired.
    assert [await wait_for_close(chat) for chat in chats] == [UNAUTHENTICATED] * 2
    with pytest.raises(Ended):
        await chats[0].start()
    assert code_of(chats[0]) == UNAUTHENTICATED


async def test_row_01_ended_login_does_not_affect_other_logins(
    stack: Stack, second_gateway: Server, revoking: Revoker, new_name: NewName
) -> None:
    """Only the sockets of the ended login close. Its token cannot renew other sessions."""
    user = new_name("eve")
    phone, laptop = (stack.token_of_login(user, login) for login in ("phone", "laptop"))
    gone = await device_with(stack, user, stack.port, phone, "d1").start()
    kept = await device_with(stack, user, second_gateway.port, laptop, "d2").start()

    await revoking.end_logins(UserId(user), ["phone"], "logged out")

    assert await wait_for_close(gone) == UNAUTHENTICATED
    with pytest.raises(Failed, match="this login has ended"):
        await kept.request("auth", token=phone)
    await kept.request("auth", token=stack.token_of_login(user, "laptop"))
    await kept.stop()


async def test_row_22_banned_user_is_disconnected_and_cannot_reconnect(
    stack: Stack, second_gateway: Server, revoking: Revoker, new_name: NewName
) -> None:
    """A ban closes the sockets and refuses new tokens until it is lifted."""
    user = new_name("eve")
    chat = await stack.chat_of(user, port=second_gateway.port).start()

    await revoking.ban(UserId(user))

    assert await wait_for_close(chat) == BANNED
    with pytest.raises(Ended):
        await chat.start(token=stack.token(user))
    assert code_of(chat) == BANNED
    await revoking.unban(UserId(user))
    await chat.start(token=stack.token(user))
    await chat.stop()


async def test_row_22_ended_login_stays_ended_after_redis_data_loss(
    stack: Stack, revoking: Revoker, new_name: NewName
) -> None:
    """Revocations that Redis lost are loaded from DynamoDB before a session is accepted."""
    user = new_name("eve")
    await store_login(stack, user, "phone")
    token = stack.token_of_login(user, "phone")
    chat = await device_with(stack, user, stack.port, token, "d1").start()
    await revoking.end_logins(UserId(user), ["phone"], "logged out")
    assert await wait_for_close(chat) == UNAUTHENTICATED
    stack.delete_user_state(user)

    with pytest.raises(Ended):
        await chat.start()

    assert code_of(chat) == UNAUTHENTICATED


async def test_session_ends_with_its_token_unless_refreshed(
    stack: Stack, new_name: NewName
) -> None:
    """A socket is closed when its token expires, unless it received a newer one."""
    user, lifetime_s = new_name("eve"), 6
    while True:
        expiry = int(time.time()) + lifetime_s
        tokens = [stack.token(user, lifetime_s) for _ in range(2)]
        short, fresh = (
            device_with(stack, user, stack.port, token, f"d{number}")
            for number, token in enumerate(tokens)
        )
        try:
            await short.start()
            await fresh.start()
            await fresh.request("auth", token=stack.token(user, 600))
            break
        except (Ended, Failed):
            # The machine was too slow for this lifetime; repeat with a longer one.
            assert time.time() >= expiry
            lifetime_s *= 2
            await short.abort()
            await fresh.abort()

    await asyncio.wait_for(short.ended.wait(), lifetime_s + 30)
    assert code_of(short) == UNAUTHENTICATED
    assert not fresh.ended.is_set()
    with pytest.raises(Failed, match="another user"):
        await fresh.request("auth", token=stack.token(new_name("mallory")))
    with pytest.raises(Failed, match="signed"):
        await fresh.request("auth", token=stack.token(user)[:-8] + "AAAAAAAA")
    await fresh.stop()


async def test_hello_with_revoked_token_does_not_replace_the_session(
    stack: Stack, revoking: Revoker, new_name: NewName
) -> None:
    """A hello with a revoked token of the same device does not close its current socket."""
    user = new_name("eve")
    old = stack.token_of_login(user, "old")
    await stack.add_users([user])
    await revoking.end_logins(UserId(user), ["old"], "logged out")
    kept = await device_with(stack, user, stack.port, stack.token(user), "d1").start()

    async with await RawSocket.open(stack.port) as ws:
        await ws.send_json({"type": "hello", "v": 1, "token": old, "device": "d1"})
        await ws.expect_close(UNAUTHENTICATED)

    await kept.request("chats")
    await kept.stop()


async def test_sdk_refreshes_its_session_before_the_token_expires(
    stack: Stack, new_name: NewName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with a token callback renews its session repeatedly on the same connection."""
    monkeypatch.setattr(token_renewal, "RENEWAL_SHARE", 0.01)
    user, issued = new_name("eve"), 0

    async def get_token() -> str:
        nonlocal issued
        issued += 1
        return stack.token(user, 60)

    async with ChatClient(f"ws://127.0.0.1:{stack.port}/", get_token) as client:
        lost: list[Disconnected] = []

        async def collect() -> None:
            async for event in client.events():
                if isinstance(event, Disconnected):
                    lost.append(event)

        collecting = asyncio.create_task(collect())
        await eventually(lambda: issued >= 4, deadline_s=30, what="three tokens were fetched")
        await client.chats()
        collecting.cancel()

    assert lost == []
