"""`Account` of the Python SDK, and an example of docs/sdk.md, on real servers."""

from __future__ import annotations

import pytest

from chatserver.client import Account, ChatClient, events
from chatserver.dev.servers import Server
from chatserver.errors import BadRequest, Conflict, Unauthenticated
from tests.support.fake_clocks import ShiftedClock
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack

PASSWORD = "correct horse 7"


async def test_account_registers_renews_resumes_and_ends(api: Server, new_name: NewName) -> None:
    """The token is renewed before it expires; the newest refresh token resumes the login."""
    saved: list[str] = []

    async def save(token: str) -> None:
        saved.append(token)

    clock, user = ShiftedClock(), new_name("acct")
    account = await Account.register(
        api.endpoint, user, PASSWORD, device="laptop", on_refresh_token=save, clock=clock
    )
    first = await account.get_token()
    same = await account.get_token()
    clock.monotonic_s = 3600.0
    renewed = await account.get_token()
    again = await Account.resume(api.endpoint, saved[-1])
    await again.log_out()

    assert account.user == again.user == user
    assert (first == same, first == renewed, len(saved)) == (True, False, 2)
    with pytest.raises(BadRequest, match="not logged in"):
        await again.get_token()
    with pytest.raises(Unauthenticated):
        await Account.resume(api.endpoint, saved[-1])


async def test_mistyped_password_is_reported_as_such(api: Server, new_name: NewName) -> None:
    """`log_in_or_register` never reports an existing user's name as taken."""
    user = new_name("acct")
    created = await Account.log_in_or_register(api.endpoint, user, PASSWORD)
    logged_in = await Account.log_in_or_register(api.endpoint, user, PASSWORD)

    assert created.user == logged_in.user == user
    with pytest.raises(Unauthenticated, match="password is wrong"):
        await Account.log_in_or_register(api.endpoint, user, PASSWORD + "x")
    with pytest.raises(Conflict):
        await Account.register(api.endpoint, user, PASSWORD)


async def test_events_of_one_kind_are_yielded_and_others_are_skipped(
    stack: Stack, api: Server, alice: RawChat, new_name: NewName
) -> None:
    """`events(MessageAdded)` skips connection events and marks, and loses no message."""
    account = await Account.register(api.endpoint, new_name("acct"), PASSWORD)
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, account.get_token) as client:
        chat = await client.open_direct(alice.user)
        await client.send(chat.id, "one")
        await alice.send(chat.id, "two")
        bodies: list[str] = []
        async for event in client.events(events.MessageAdded):
            bodies.append(event.message.body)  # mypy checks that this attribute exists
            if len(bodies) == 2:
                break

    assert bodies == ["one", "two"]
