"""chat.v1: blocking, muting, banning, slow mode and reports, on real processes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

from chatserver.domain.write_restrictions import BLOCKED, MUTE_OVER, MUTED
from chatserver.warm.chats.moderation import Moderation
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.rawchat import Failed, RawChat, get_refusal
from tests.support.servers.processes import eventually, redis_client
from tests.support.stack import NewName, Stack

_refs = itertools.count(1)


async def get_error(device: RawChat, type_: str, **fields: Any) -> tuple[str, str]:
    """Return code and message of the error of a refused request."""
    refused = await get_refusal(device.request(type_, **fields))
    return refused.code, refused.message


async def send_refused(device: RawChat, chat: str, body: str = "hello?") -> Failed:
    """Return the error of a refused message."""
    return await get_refusal(device.send_unrecorded(chat, f"m-{next(_refs)}", body))


# blocking


async def test_block_ends_direct_messages_both_ways_until_unblocked(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Both users get the same error, and earlier messages stay readable."""
    await bob.send(pair, "before")

    await alice.request("block", user=bob.user)
    failures = [await send_refused(device, pair) for device in (alice, bob)]
    page = await bob.request("history", chat=pair)
    listed = await alice.request("blocks")
    await alice.request("block", user=bob.user)
    await alice.request("unblock", user=bob.user)
    ack = await bob.send(pair, "after")

    assert [(each.code, each.message) for each in failures] == [("forbidden", BLOCKED)] * 2
    assert [each["body"] for each in page["messages"]] == ["before"]
    assert [each["user"] for each in listed["blocked"]] == [bob.user]
    assert not listed["more"]
    assert ack["seq"] == 2
    for device in (alice, bob):  # earlier events arrived before these
        await device.expect_bodies(pair, ["before", "after"])
    # The user who blocks gets the change; the blocked user does not.
    flags = [event["info"].get("blocked", False) for event in alice.of_type("event", kind="chat")]
    assert flags == [False, True, False]
    assert len(bob.of_type("event", kind="chat")) == 1


async def test_mutual_block_ends_when_both_unblock(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Each user can remove only their own block."""
    await alice.request("block", user=bob.user)
    await bob.request("block", user=alice.user)

    await alice.request("unblock", user=bob.user)
    failed = await send_refused(alice, pair)
    await bob.request("unblock", user=alice.user)
    ack = await alice.send(pair, "at last")

    assert failed.code == "forbidden"
    assert ack["seq"] == 1


async def test_block_without_a_common_chat_refuses_direct_chats_groups_and_invitations(
    alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """A direct chat is refused in both directions."""
    await alice.request("block", user=bob.user)
    group = (
        await bob.request(
            "create_chat", ref=new_name("g"), members=[await create_third_user(bob, alice)]
        )
    )["chat"]["chat"]

    assert await get_error(bob, "open_direct", user=alice.user) == ("forbidden", BLOCKED)
    assert await get_error(alice, "open_direct", user=bob.user) == ("forbidden", BLOCKED)
    assert (await get_error(bob, "create_chat", ref=new_name("g"), members=[alice.user]))[
        0
    ] == "forbidden"
    invited = await get_error(bob, "invite", chat=group, ref="i", users=[alice.user])
    assert invited == ("forbidden", f"{alice.user}: you cannot interact with this user")


async def create_third_user(device: RawChat, other: RawChat) -> str:
    """Create a third user; return the name."""
    name = f"{other.user}-friend"
    async with RawChat(name, device.port, device._token_of):
        return name


async def test_block_survives_the_loss_of_redis(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The next load of the chat reads the block from DynamoDB."""
    await alice.request("block", user=bob.user)
    with redis_client(stack.redis_url) as client:
        names = [*client.scan_iter(f"*:{pair}"), *client.scan_iter(f"*:blocks:{bob.user}")]
        client.delete(*names)
        client.hdel(f"{{p0}}:box:{bob.user}", "known")

    failed = await send_refused(bob, pair)
    async with stack.chat_of(bob.user, device="bob-2"):
        with redis_client(stack.redis_url) as client:
            blocked = client.smembers(f"{{p0}}:blocks:{bob.user}")

    assert failed.code == "forbidden"
    assert blocked == {alice.user.encode()}


async def test_block_hides_typing_marks_and_presence(
    alice: RawChat, bob: RawChat, pair: str, group: str
) -> None:
    """This also holds in a group that both are in (security list, row 19)."""
    await alice.request("block", user=bob.user)
    await alice.send(group, "to all")
    await bob.expect(lambda me: me.messages(group))

    await bob.send_frame("typing", chat=group, on=True)
    await bob.request("mark", chat=group, read=1)
    await bob.send_frame("watch", users=[alice.user])
    await alice.send_frame("watch", users=[bob.user])
    page = await alice.request("history", chat=group)
    # Signals and marks would arrive before these two messages.
    await bob.send(group, "end")
    await alice.expect(lambda me: len(me.messages(group)) == 2)
    await bob.request("chats")

    assert not alice.of_type("signal")
    assert not bob.of_type("signal")
    assert not alice.of_type("event", kind="read", chat=group)
    assert [marks["user"] for marks in page["marks"]] == [alice.user]


async def test_blocks_are_listed_in_pages(stack: Stack, alice: RawChat, new_name: NewName) -> None:
    """Each blocked user is listed once, in the order of the names."""
    users = sorted(new_name("blocked") for _ in range(5))
    await stack.add_users(users)
    for user in users:
        await alice.request("block", user=user)

    listed: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await alice.request("blocks", limit=2, **after)
        listed += [each["user"] for each in page["blocked"]]
        if not page["more"]:
            break
        after = {"after": page["next"]}

    assert listed == users


# muting, slow mode, banning


async def test_muted_member_can_read_but_not_write_until_unmuted(
    alice: RawChat, bob: RawChat, group: str
) -> None:
    """All members get an entry of the mute, and the chat's info contains it."""
    await bob.send(group, "one")

    info = await alice.change("mute_member", group, user=bob.user)
    failed = await send_refused(bob, group)
    edit = await get_error(bob, "edit", chat=group, ref="e", seq=1, body="edited")
    react = await get_error(bob, "react", chat=group, ref="r", seq=1, emoji="👍")
    await bob.request("delete", chat=group, ref="d", seq=1)
    await alice.change("mute_member", group, user=bob.user, mute_s=0)
    ack = await bob.send(group, "two")

    assert info["muted"] == {bob.user: 0}
    assert (failed.code, failed.message) == ("forbidden", MUTED)
    assert edit == react == ("forbidden", MUTED)
    assert ack["seq"] == 5
    await bob.expect(lambda me: len(me.of_type("event", kind="member", chat=group)) == 2)
    entries = [each["message"] for each in bob.of_type("event", kind="member", chat=group)]
    assert [each["muted_until"] for each in entries] == [0, MUTE_OVER]
    assert {each["role"] for each in entries} == {"member"}


async def test_timed_mute_survives_the_loss_of_redis_and_a_role_change(
    stack: Stack, alice: RawChat, bob: RawChat, group: str
) -> None:
    """DynamoDB stores the mute. It has no effect while the member is an admin."""
    info = await alice.change("mute_member", group, user=bob.user, mute_s=3600)
    with redis_client(stack.redis_url) as client:
        head = f"{{p0}}:chat:{group}"
        await eventually(
            lambda: client.hget(head, "stored") == client.hget(head, "seq"), what="persisted"
        )
        client.delete(*client.scan_iter(f"*:{group}"))

    failed = await send_refused(bob, group)
    await alice.change("set_role", group, user=bob.user, role="admin")
    await bob.send(group, "as an admin")
    await alice.change("set_role", group, user=bob.user, role="member")
    again = await send_refused(bob, group)

    assert info["muted"][bob.user] > 1_700_000_000
    assert failed.fields["retry_after_ms"] > 3_000_000
    assert again.message == MUTED


async def test_slow_mode_limits_members_but_not_the_owner(
    alice: RawChat, bob: RawChat, group: str
) -> None:
    """The second message is refused with the time to wait; a later one is accepted."""
    info = await alice.change("update_chat", group, slow_s=600)
    await bob.send(group, "one")
    failed = await send_refused(bob, group)
    for body in ("a", "b"):
        await alice.send(group, body)
    await alice.change("update_chat", group, slow_s=0)
    await bob.send(group, "two")

    assert info["slow_s"] == 600
    assert failed.code == "rate_limited"
    assert 0 < failed.fields["retry_after_ms"] <= 600_000
    await bob.expect(lambda me: len(me.messages(group)) == 4)
    bodies = [each["body"] for each in (await bob.request("history", chat=group))["messages"]]
    assert [body for body in bodies if body in ("one", "a", "b", "two")] == ["one", "a", "b", "two"]


async def test_banned_member_cannot_return_until_unbanned(
    alice: RawChat, bob: RawChat, group: str
) -> None:
    """The member can neither join an open group nor be invited."""
    await alice.change("update_chat", group, joining="open")

    await alice.change("ban_member", group, user=bob.user)
    failed = await send_refused(bob, group)
    join = await get_error(bob, "join", chat=group, ref="j")
    invite = await get_error(alice, "invite", chat=group, ref="i", users=[bob.user])
    await alice.change("ban_member", group, user=bob.user)
    await alice.change("unban_member", group, user=bob.user)
    info = await bob.change("join", group)

    assert (failed.code, join[0], invite[0]) == ("not_found", "not_found", "forbidden")
    assert info["count"] == 2
    entry = (await bob.expect_frame("event", kind="member", chat=group))["message"]
    assert (entry["user"], entry["role"], entry["banned"]) == (bob.user, "", True)


async def test_banned_non_member_gets_no_event(
    stack: Stack, alice: RawChat, bob: RawChat, group: str, new_name: NewName
) -> None:
    """A user who was never a member gets no event of the chat (guarantee P7)."""
    async with stack.chat_of(new_name("carol")) as carol:
        await alice.send(group, "secret")
        await alice.change("ban_member", group, user=carol.user)
        await bob.expect(lambda me: me.of_type("event", kind="member", chat=group))
        assert (await get_error(alice, "invite", chat=group, ref="i", users=[carol.user]))[
            0
        ] == "forbidden"
        await carol.request("chats")

        assert not carol.of_type("event", chat=group)
    assert (await alice.change("update_chat", group, name="Still two"))["count"] == 2


# reports


async def test_report_of_a_message_is_stored_once_and_can_be_resolved(
    stack: Stack, alice: RawChat, bob: RawChat, group: str
) -> None:
    """A second report of the same user is ignored; a non-member cannot report."""
    await alice.send(group, "rude")

    for reason in ("rude", "again"):
        await bob.request("report", chat=group, seq=1, reason=reason)
    missing = await get_error(bob, "report", chat=group, seq=99)
    non_member = await get_error(bob, "report", chat="no-such-chat", seq=1)

    async with open_dynamodb(stack.warm) as client:
        rows = Moderation(client)
        (report,) = await rows.list_reports(group, None, 10)
        assert (report.reporter, report.seq, report.reason) == (bob.user, 1, "rude")
        found, _ = await rows.list_open_reports(None, 200)
        matches = [each for each in found if each == report]
        assert len(matches) == 1
        await rows.resolve(report, "user:alice", 1_800_000_000.0)
        await rows.resolve(report, "user:later", 1_800_000_000.0)
        found, _ = await rows.list_open_reports(None, 200)
        assert not [each for each in found if each.chat == group]
        (resolved,) = await rows.list_reports(group, None, 10)
        assert (resolved.state, resolved.resolved_by) == ("resolved", "user:alice")
    assert missing[0] == non_member[0] == "not_found"


async def test_message_sent_during_a_block_is_delivered_before_it_or_refused(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """After the response to `block`, no message of the other user is delivered."""

    async def send_until_refused() -> AsyncIterator[Any]:
        for number in itertools.count():
            try:
                yield (await bob.send_unrecorded(pair, f"r{number}", "x"))["seq"]
            except Failed as exc:
                yield exc.code
                return

    async def collect() -> list[Any]:
        return [each async for each in send_until_refused()]

    sending = asyncio.create_task(collect())
    await alice.expect(lambda me: me.messages(pair))
    await alice.request("block", user=bob.user)
    newest = (await alice.request("history", chat=pair))["messages"][-1]["seq"]
    outcome = await asyncio.wait_for(sending, 30)
    later = (await alice.request("history", chat=pair))["messages"][-1]["seq"]

    assert later == newest
    assert outcome[-1] == "forbidden"
    assert outcome[:-1] == list(range(1, newest + 1))
