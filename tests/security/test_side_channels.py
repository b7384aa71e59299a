"""Rows 3 and 19: authorization of internal calls, and of markers, typing and reactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chatserver.config import Redis
from chatserver.domain.ids import GatewayId, UserId, new_id
from chatserver.errors import ClientError, Forbidden, NotFound
from chatserver.hot.bus.gateway_stream import CallResult, Echo, GatewayStream
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import frames
from chatserver.requests.registry import make_call
from tests.support.rawchat import RawChat, get_refusal
from tests.support.stack import Stack


@pytest.fixture
async def warm_calls(stack: Stack) -> AsyncIterator[RpcClient]:
    """Calls to the workers like those of a gateway, but without a session."""
    gateway = GatewayId(f"gw-{new_id().lower()}")
    async with open_hot(Redis(url=stack.redis_url, call_timeout_s=20)) as hot:
        calls = RpcClient(hot, gateway, 30.0)
        gateway_stream = GatewayStream(hot, gateway, 60)
        await gateway_stream.renew()
        is_reading = asyncio.Event()
        reading = asyncio.create_task(_read(gateway_stream, calls, is_reading))
        # Records before the first read of the stream are skipped.
        async with asyncio.timeout(20):
            while not is_reading.is_set():
                gateway_stream.send_to_self(Echo(1))
                await asyncio.sleep(0.05)
        yield calls
        reading.cancel()


async def _read(gateway_stream: GatewayStream, calls: RpcClient, is_reading: asyncio.Event) -> None:
    async for records in gateway_stream.iter_records():
        for record in records or ():
            if isinstance(record, Echo):
                is_reading.set()
            if isinstance(record, CallResult):
                calls.handle_result(record)


async def test_row_3_internal_calls_are_authorized_by_the_worker(
    alice: RawChat, bob: RawChat, group: str, warm_calls: RpcClient
) -> None:
    """The worker checks the permissions of the user in a call."""
    bob_id, stranger = UserId(bob.user), UserId("a-stranger")

    async def check_refused(user: UserId, change: frames.ClientFrame) -> type[ClientError]:
        with pytest.raises(ClientError) as caught:
            await warm_calls.forward_frame(make_call(user, change), is_needed=False)
        return type(caught.value)

    assert await check_refused(bob_id, frames.BanMember(1, group, "r1", alice.user)) is Forbidden
    assert await check_refused(bob_id, frames.MuteMember(1, group, "r2", alice.user)) is Forbidden
    assert await check_refused(bob_id, frames.Remove(1, group, "r3", alice.user)) is Forbidden
    assert await check_refused(stranger, frames.BanMember(1, group, "r4", bob.user)) is NotFound
    assert await check_refused(stranger, frames.UnbanMember(1, group, "r5", bob.user)) is NotFound
    assert await check_refused(stranger, frames.Report(1, group, 1, "")) is NotFound
    assert [each["kind"] for each in (await alice.request("history", chat=group))["messages"]] == []


async def test_row_19_marks_typing_and_reactions_of_non_members_are_not_delivered(
    stack: Stack, alice: RawChat, bob: RawChat, group: str
) -> None:
    """Requests of a non-member and of a banned member are refused. Members receive nothing."""
    await alice.send(group, "hello")
    async with stack.chat_of(f"eve-{new_id().lower()}") as eve:
        await alice.request("ban_member", chat=group, ref="b", user=bob.user)
        await bob.expect(lambda me: me.of_type("event", kind="member", chat=group))
        for device in (eve, bob):
            for type_, fields in (
                ("mark", {"read": 1}),
                ("react", {"ref": "r", "seq": 1, "emoji": "👍"}),
                ("edit", {"ref": "e", "seq": 1, "body": "x"}),
                ("delete", {"ref": "d", "seq": 1}),
                ("report", {"seq": 1}),
            ):
                refused = await get_refusal(device.request(type_, chat=group, **fields))
                assert refused.code == "not_found", (type_, device.user)
            await device.send_frame("typing", chat=group, on=True)
            await device.send_frame("watch", users=[alice.user])
            await device.request("chats")  # the frames before it have been handled

        # The next message of the chat is delivered after anything that they may have caused.
        await alice.send(group, "end")
        await alice.expect(lambda me: len(me.messages(group)) == 2)

    assert not alice.of_type("signal")
    assert not bob.of_type("signal")
    assert not alice.of_type("event", kind="read", chat=group)
    assert not alice.of_type("event", kind="reaction", chat=group)
    (message,) = [each for each in alice.messages(group) if each["body"] == "hello"]
    assert "reactions" not in message
