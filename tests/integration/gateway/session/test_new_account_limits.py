"""Limits of new accounts: those of a network share budgets, because accounts are free."""

from __future__ import annotations

from typing import Any

from chatserver.hot.bus import rpc
from tests.integration.gateway.session.limits_support import STRICT, Sender
from tests.support.servers.processes import redis_client
from tests.support.stack import NewName, Stack


async def test_new_accounts_of_a_network_share_a_memory_limit(
    stack: Stack, new_name: NewName
) -> None:
    """Accounts are free: with a limit per account only, one network could fill Redis."""
    gateway = stack.start_gateway(**STRICT | {"CHAT_LIMITS_SENDS": "1000/s burst 1000"})
    known, bob = new_name("known"), new_name("bob")
    await stack.add_users([bob])
    async with stack.chat_of(known) as device:
        chat = await device.open_direct(bob)
    acks = 0
    for number in range(8):
        user = new_name("cheap")
        sender = Sender(stack, user, "d1")
        await sender.start(gateway, f"198.51.100.{number + 1}", stack.token_of_new_account(user))
        await sender.ws.send_json({"type": "open_direct", "id": 99, "user": known})
        while (opened := await sender.ws.recv_json()).get("id") != 99:
            pass
        if opened["type"] == "ok":
            answers = await sender.send_many(
                18, type="send", chat=opened["chat"]["chat"], body="🙂" * 3_750
            )
            acks += sum(answer["type"] == "ack" for answer in answers)
        await sender.ws.abort()

    assert 60 <= acks <= 1_500_000 // 19_000, "a network has the budgets of five accounts"
    sender = Sender(stack, known, "d1")
    await sender.start(gateway, "198.51.100.9")
    (answer,) = await sender.send_many(1, type="send", chat=chat, body="from a known account")
    assert answer["type"] == "ack"
    await sender.ws.abort()


async def test_new_accounts_of_a_network_share_a_limit_of_sends(
    stack: Stack, new_name: NewName
) -> None:
    """Each has a small burst, and all of them together have one."""
    gateway = stack.start_gateway(**STRICT | {"CHAT_LIMITS_SENDS": "0.01/s burst 50"})
    acks = []
    for number in range(4):
        user = new_name("cheap")
        await stack.add_users([f"{user}-peer"])
        sender = Sender(stack, user, "d1")
        await sender.start(gateway, f"198.51.77.{number + 1}", stack.token_of_new_account(user))
        await sender.ws.send_json({"type": "open_direct", "id": 99, "user": f"{user}-peer"})
        while (opened := await sender.ws.recv_json()).get("id") != 99:
            pass
        assert opened["type"] == "ok", opened
        answers = await sender.send_many(30, type="send", chat=opened["chat"]["chat"])
        acks.append(sum(answer["type"] == "ack" for answer in answers))
        await sender.ws.abort()

    assert acks == [25, 25, 0, 0]


async def test_new_account_can_block_when_the_requests_of_its_network_are_spent(
    stack: Stack, new_name: NewName
) -> None:
    """Other accounts of its network spent them; those of other networks are not concerned."""
    gateway = stack.start_gateway(**STRICT | {"CHAT_LIMITS_REQUESTS": "0.01/s burst 64"})
    codes = []

    async def request(sender: Sender, type_: str, **fields: Any) -> str:
        await sender.ws.send_json({"type": type_, "id": 7, **fields})
        while (answer := await sender.ws.recv_json()).get("id") != 7:
            pass
        return str(answer.get("code", answer["type"]))

    for number in range(12):
        user = new_name("cheap")
        sender = Sender(stack, user, "d1")
        await sender.start(gateway, f"198.51.78.{number + 1}", stack.token_of_new_account(user))
        while (code := await request(sender, "chats", limit=1)) == "page":
            pass
        codes.append(code)
        await sender.ws.abort()

    found = []
    for address in ("198.51.78.99", "198.51.79.99"):
        user, peer = new_name("late"), new_name("peer")
        await stack.add_users([peer])
        sender = Sender(stack, user, "d1")
        await sender.start(gateway, address, stack.token_of_new_account(user))
        found.append([await request(sender, "block", user=peer)])
        found[-1].append(await request(sender, "chats", limit=1))
        await sender.ws.abort()

    assert set(codes) == {"rate_limited"}
    assert found == [["ok", "rate_limited"], ["ok", "page"]]


async def test_calls_of_a_new_account_are_queued_by_its_network(
    stack: Stack, new_name: NewName
) -> None:
    """Also those that a send causes; a block has the account's own key."""
    user, peer = new_name("cheap"), new_name("peer")
    await stack.add_users([peer])
    sender = Sender(stack, user, "d1")
    await sender.start(
        stack.start_gateway(**STRICT), "198.51.66.7", stack.token_of_new_account(user)
    )
    frames = [
        {"type": "open_direct", "user": peer},
        {"type": "block", "user": peer},
        {"type": "send", "chat": "absent", "ref": "r", "body": "to a chat that is not loaded"},
    ]
    for number, frame in enumerate(frames):
        await sender.ws.send_json({"id": number, **frame})
        while (await sender.ws.recv_json()).get("id") != number:
            pass
    await sender.ws.abort()

    with redis_client(stack.redis_url) as redis:
        calls = [rpc.decode_call(fields[b"c"]) for _, fields in redis.xrange("{rpc}:calls")]
    found = {
        rpc.get_name(call.operation): call.queue_key
        for call in calls
        if user in str(call.operation) or "absent" in str(call)
    }
    network = "network/4-c63342"
    assert found == {
        "load_user": network, "open_direct": network, "block": user, "load_chat": network
    }  # fmt: skip
