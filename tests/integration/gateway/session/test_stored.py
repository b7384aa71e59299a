"""`stored` after a disconnect: a reconnected device gets the current stored position."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, NewName, Stack, open_stack

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with two gateways, without a persist worker until a test starts it."""
    folder = tmp_path_factory.mktemp("stored")
    with open_stack(
        folder, gateways=2, workers=(("repair", "rpc"),), fsync="no", env=PATIENT
    ) as made:
        yield made


def stop_persist(stack: Stack) -> None:
    """Stop the persist worker if another test started it: the order of tests is random."""
    if (persist := stack.workers.pop("persist", None)) is not None:
        persist.stop()


def stored_upto(device: RawChat, chat: str) -> int:
    """Return the highest `stored` position that the device received for a chat."""
    return max((frame["upto"] for frame in device.of_type("stored", chat=chat)), default=0)


async def test_device_that_resumes_at_another_gateway_gets_stored(
    resumable: Stack, new_name: NewName
) -> None:
    """It gets `stored` without a request, if persisted before or after the reconnect."""
    east, west = resumable.ports()
    bob, mallory = new_name("bob"), new_name("mallory")
    await resumable.add_users([bob])
    stop_persist(resumable)
    async with resumable.chat_of(new_name("alice"), port=east) as alice:
        chat = await alice.open_direct(bob, deadline_s=DEADLINE_S)
        for number in range(3):
            await alice.send(chat, f"m{number}")
        await alice.abort()
        await alice.start(port=west)
        assert stored_upto(alice, chat) == 0

        resumable.start_worker("persist")
        await alice.expect(lambda me: stored_upto(me, chat) == 3, DEADLINE_S, "stored")
        assert alice.unstored == {}

        await alice.abort()
        alice.frames.clear()
        await alice.start(port=east, unstored={chat: 3, "nowhere": 5})
        await alice.expect(lambda me: stored_upto(me, chat) == 3, DEADLINE_S, "stored again")
        async with resumable.chat_of(mallory, port=east) as stranger:
            await stranger.abort()
            await stranger.start(unstored={chat: 3})
            await stranger.request("chats", deadline_s=DEADLINE_S)
            assert stranger.of_type("stored") == []


async def test_retry_of_a_stored_send_is_followed_by_stored(
    resumable: Stack, new_name: NewName
) -> None:
    """The first `stored` may have been lost; a retry with the same ref repeats it."""
    bob = new_name("bob")
    await resumable.add_users([bob])
    if not resumable.workers.get("persist"):
        resumable.start_worker("persist")
    async with resumable.chat_of(new_name("alice")) as alice:
        chat = await alice.open_direct(bob, deadline_s=DEADLINE_S)
        send = {"chat": chat, "ref": "r1", "body": "hello"}
        edit = {"chat": chat, "ref": "r2", "seq": 1, "body": "bye"}
        hide = {"chat": chat, "ref": "r3", "seq": 1, "for": "me"}
        await alice.request("send", **send, deadline_s=DEADLINE_S)
        await alice.request("edit", **edit, deadline_s=DEADLINE_S)
        await alice.request("delete", **hide, deadline_s=DEADLINE_S)
        await alice.expect(lambda me: stored_upto(me, chat) == 2, DEADLINE_S, "stored")

        for kind, fields in (("send", send), ("edit", edit)):
            alice.frames.clear()
            again = await alice.request(kind, **fields, deadline_s=DEADLINE_S)
            assert again["dup"], kind
            await alice.expect(
                lambda me: stored_upto(me, chat) == 2, DEADLINE_S, f"stored after a retry of {kind}"
            )

        async def is_hide_stored() -> bool:
            ack = await alice.request("delete", **hide, deadline_s=DEADLINE_S)
            return bool(ack["dup"] and ack["durability"] == "stored")

        await eventually(is_hide_stored, DEADLINE_S, "the hide is stored")
