"""Access of a member who left or was removed and joined again."""

from __future__ import annotations

import pytest

from tests.integration.api.support import Caller
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually, redis_client
from tests.support.stack import Stack


async def read_pages(
    device: RawChat, chat: str, limit: int, *, is_upwards: bool = False
) -> list[int]:
    """Read history page by page like a client; return all seqs."""
    seen: list[int] = []
    window = {"after": 0} if is_upwards else {}
    while True:
        page = await device.request("history", chat=chat, limit=limit, **window)
        seqs = [message["seq"] for message in page["messages"]]
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        seen = seen + seqs if is_upwards else seqs + seen
        if not page["more"]:
            return seen
        window = {"after": seqs[-1]} if is_upwards else {"before": seqs[0]}


@pytest.fixture
async def rejoined(alice: RawChat, bob: RawChat, group: str) -> str:
    """The group after bob rejoined. Bob may read 1 to 3 and 6 to 7; 4 and 5 are the gap."""
    await alice.send(group, "one")
    await bob.send(group, "two")
    await bob.change("leave", group)
    await alice.send(group, "secret one")
    await alice.send(group, "secret two")
    await alice.change("invite", group, users=[bob.user])
    await alice.send(group, "back again", durability="stored")
    return group


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_history_of_a_rejoined_member_has_both_periods_without_the_gap(
    bob: RawChat, rejoined: str, limit: int
) -> None:
    """Tested in both directions with any page size. Only messages since the rejoin are unread."""
    assert await read_pages(bob, rejoined, limit) == [1, 2, 3, 6, 7]
    assert await read_pages(bob, rejoined, limit, is_upwards=True) == [1, 2, 3, 6, 7]
    below = await bob.request("history", chat=rejoined, before=5, limit=limit)
    assert below["messages"][-1]["seq"] == 3
    above = await bob.request("history", chat=rejoined, after=4, limit=limit)
    assert above["messages"][0]["seq"] == 6
    assert (await bob.read_list())[rejoined]["unread"] == 1


async def test_periods_survive_the_loss_of_redis(
    stack: Stack, alice: RawChat, bob: RawChat, rejoined: str
) -> None:
    """The chat and its periods are loaded from the directory."""
    with redis_client(stack.redis_url) as client:
        client.delete(*client.scan_iter(f"*:{rejoined}"))

    assert await read_pages(bob, rejoined, 50) == [1, 2, 3, 6, 7]
    await alice.send(rejoined, "after the loss")
    assert await read_pages(bob, rejoined, 2) == [1, 2, 3, 6, 7, 8]


async def test_lists_and_lookups_of_a_rejoined_member_leave_out_the_gap(
    caller: Caller, bob: RawChat, rejoined: str
) -> None:
    """Tested are lists by time, message context, lookup by seq and by mid, and reports."""
    client, path = caller(bob.user), f"/v1/chats/{rejoined}/messages"
    page = await bob.request("history", chat=rejoined, before=4)
    own = page["messages"][1]

    for name in ("between", "active"):
        answer = await client.get(f"{path}/{name}", params={"limit": 50})
        found = [each["body"] for each in answer.json()["items"]]
        assert sorted(found) == ["back again", "one", "two"]
    sent = await client.get("/v1/me/sent", params={"limit": 50})
    assert [each["body"] for each in sent.json()["items"]] == ["two"]
    statuses = [(await client.get(f"{path}/{seq}")).status_code for seq in range(1, 8)]
    assert statuses == [200, 200, 200, 404, 404, 200, 200]
    around = await client.get(f"{path}/around/{own['seq']}", params={"limit": 10})
    seqs = [each["seq"] for each in around.json()["messages"]]
    assert {1, 2, 3} <= set(seqs) <= {1, 2, 3, 6, 7}
    by_mid = await client.get(f"{path}/by-mid/{own['mid']}", params={"ts": own["ts"]})
    assert (by_mid.status_code, by_mid.json()["body"]) == (200, "two")
    assert (await bob.request("report", chat=rejoined, seq=1, reason="spam"))["type"] == "ok"
    with pytest.raises(Failed, match="not_found"):
        await bob.request("report", chat=rejoined, seq=4, reason="spam")


async def test_changes_of_earlier_messages_reach_a_rejoined_member_with_their_text(
    alice: RawChat, bob: RawChat, rejoined: str
) -> None:
    """They arrive live, after a reconnect and in history. Changes in the gap have no text."""
    await bob.request("edit", chat=rejoined, seq=2, ref="e1", body="two, edited")
    await alice.request("edit", chat=rejoined, seq=4, ref="e2", body="still secret")
    live = await bob.expect(
        lambda me: (
            len(me.of_type("event", kind="edit", chat=rejoined)) == 2
            and me.of_type("event", kind="edit", chat=rejoined)
        )
    )
    await bob.abort()
    await alice.request("react", chat=rejoined, seq=1, ref="r1", emoji="👍")
    await bob.reconnect()

    assert live
    texts = [each["message"]["body"] for each in bob.of_type("event", kind="edit", chat=rejoined)]
    assert texts == ["two, edited", ""]
    await bob.expect(lambda me: me.of_type("event", kind="reaction", chat=rejoined))
    (reaction,) = bob.of_type("event", kind="reaction", chat=rejoined)
    assert reaction["message"]["body"] == "👍"
    newest = (await bob.request("history", chat=rejoined, after=7))["messages"]
    assert [each["body"] for each in newest] == ["two, edited", "", "👍"]
    earlier = (await bob.request("history", chat=rejoined, before=4))["messages"]
    assert [each["body"] for each in earlier] == ["one", "two, edited", ""]
    await bob.request("delete", chat=rejoined, seq=2, ref="d1")
    earlier = (await bob.request("history", chat=rejoined, before=4))["messages"]
    assert earlier[1]["deleted"]


async def test_each_period_is_readable_and_nothing_between_them(
    alice: RawChat, bob: RawChat, group: str
) -> None:
    """Each membership adds its own seqs, whether the member left or was removed."""
    readable: list[int] = []
    for number in range(4):
        await alice.send(group, f"in {number}")
        if number % 2:
            await alice.change("remove", group, user=bob.user)
        else:
            await bob.change("leave", group)
        left = (await alice.send(group, f"out {number}"))["seq"] - 1
        await alice.change("invite", group, users=[bob.user])
        readable += range(readable[-1] + 2 if readable else 1, left + 1)
    readable += [readable[-1] + 2]

    assert await read_pages(bob, group, 50) == readable
    bodies = [m["body"] for m in (await bob.request("history", chat=group, after=0))["messages"]]
    assert not any(body.startswith("out") for body in bodies)


async def test_rejoined_member_of_a_chat_with_full_history_reads_the_gap(
    alice: RawChat, bob: RawChat, rejoined: str
) -> None:
    """The gap is hidden again when the setting is changed back."""
    await alice.change("update_chat", rejoined, history="all")
    assert await read_pages(bob, rejoined, 3) == list(range(1, 9))

    await alice.change("update_chat", rejoined, history="joined")
    assert await read_pages(bob, rejoined, 3) == [1, 2, 3, 6, 7, 8, 9]


async def test_former_member_cannot_read_their_own_periods(
    alice: RawChat, bob: RawChat, rejoined: str
) -> None:
    """They cannot read them while banned, and after the ban until they are a member again."""
    await alice.change("ban_member", rejoined, user=bob.user)
    for is_lifted in (False, True):
        if is_lifted:
            await alice.change("unban_member", rejoined, user=bob.user)
        with pytest.raises(Failed, match="not_found"):
            await bob.request("history", chat=rejoined, before=3)

    await alice.change("invite", rejoined, users=[bob.user])
    assert await read_pages(bob, rejoined, 50) == [1, 2, 3, 6, 7, 8, 9]


async def test_chat_list_shows_no_message_of_the_gap_as_preview(
    alice: RawChat, bob: RawChat, group: str
) -> None:
    """If there is no message after the gap, the preview is from an earlier period."""
    await alice.send(group, "seen")
    await bob.change("leave", group)
    await alice.change("invite", group, users=[bob.user])
    seen = (await bob.read_list())[group]["last"]
    await bob.change("leave", group)
    await alice.send(group, "secret")
    await alice.change("invite", group, users=[bob.user])
    hidden = (await bob.read_list())[group].get("last")

    assert (seen["body"], hidden) == ("seen", None)


@pytest.mark.parametrize("mute_s", [None, 3600])
async def test_muted_member_of_an_open_group_is_still_muted_after_rejoining(
    stack: Stack, alice: RawChat, bob: RawChat, group: str, mute_s: int | None
) -> None:
    """The chat and the entry have the mute. It survives a loss of Redis and can be lifted."""
    await alice.change("update_chat", group, joining="open")
    info = await alice.change("mute_member", group, user=bob.user, mute_s=mute_s)
    await bob.change("leave", group)

    again = await bob.change("join", group)

    assert again["muted"] == info["muted"]
    entry = alice.of_type("event", kind="member", chat=group)
    last = await alice.expect(
        lambda me: (
            (found := me.of_type("event", kind="member", chat=group))[-1]["message"]["role"]
            and found[-1]
        )
    )
    assert (bool(entry), last["message"]["muted_until"]) == (True, info["muted"][bob.user])
    with pytest.raises(Failed, match="you may not send messages"):
        await bob.send(group, "hello?")
    with redis_client(stack.redis_url) as client:
        head = f"{{p0}}:chat:{group}"
        await eventually(
            lambda: client.hget(head, "stored") == client.hget(head, "seq"),
            what="the mute is persisted",
        )
        client.delete(*client.scan_iter(f"*:{group}"))
    with pytest.raises(Failed, match="you may not send messages"):
        await bob.send(group, "hello?")
    await alice.change("set_role", group, user=bob.user, role="admin")
    await alice.change("set_role", group, user=bob.user, role="member")
    await alice.change("mute_member", group, user=bob.user, mute_s=0)
    await bob.send(group, "hello")
    await bob.change("leave", group)
    await bob.change("join", group)
    await bob.send(group, "and again")
