"""Message lists over HTTP: by time, sender, receiver and status, around a message, and by id.

Messages are sent with durability `stored`. Changes may still be only in Redis: a list includes
every change that was acked before the request.
"""

from __future__ import annotations

from tests.integration.api.support import Caller, bodies, make_group, problem_of, send, store
from tests.security.support.users import make_key
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import NewName, Stack


async def test_messages_between_two_times_are_paged_either_way(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """Both ends of the range are included, and both are optional."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages/between"
    ts = [(await store(client, pair, f"m{n}"))["ts"] for n in range(5)]

    newest = await bodies(client, path)
    oldest = await bodies(client, path, order="oldest")
    between = await bodies(client, path, **{"from": ts[1], "to": ts[3]})
    single = await bodies(client, path, **{"from": ts[2], "to": ts[2]})
    empty = await client.get(path, params={"from": ts[2], "to": ts[1]})

    assert newest == ["m4", "m3", "m2", "m1", "m0"]
    assert oldest == newest[::-1]
    assert between == ["m3", "m2", "m1"]
    assert single == ["m2"]
    assert problem_of(empty) == (400, "bad_request")


async def test_lists_omit_deleted_and_hidden_messages_and_reactions(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """This is true before the change is in DynamoDB; an edited message has its new text."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seqs = [(await store(mine, pair, f"m{n}"))["seq"] for n in range(5)]
    await theirs.put(f"/v1/chats/{pair}/messages/{seqs[0]}/reaction", json={"emoji": "👍"})
    await mine.patch(f"/v1/chats/{pair}/messages/{seqs[1]}", json={"body": "edited"})
    await mine.delete(f"/v1/chats/{pair}/messages/{seqs[2]}")
    await theirs.delete(f"/v1/chats/{pair}/messages/{seqs[3]}", params={"for": "me"})

    for_alice, for_bob = ["m4", "m3", "edited", "m0"], ["m4", "edited", "m0"]
    chat = f"/v1/chats/{pair}/messages"
    for path in (f"{chat}/between", f"{chat}/active", "/v1/me/sent"):
        assert await bodies(mine, path) == for_alice, path
    for path in (f"{chat}/between", f"{chat}/active", "/v1/me/received"):
        assert await bodies(theirs, path) == for_bob, path
    assert await bodies(theirs, "/v1/me/sent") == []
    assert await bodies(mine, "/v1/me/received") == []


async def test_deleted_message_is_not_in_the_active_index(
    caller: Caller, stack: Stack, alice: RawChat, pair: str
) -> None:
    """Its key in the status index starts with `deleted#`."""
    client = caller(alice.user)
    seqs = [(await store(client, pair, f"m{n}"))["seq"] for n in range(3)]
    await client.delete(f"/v1/chats/{pair}/messages/{seqs[1]}")

    async def has_left() -> bool:
        items = await stack.read_items(pair)
        return any(item["status_ts"]["S"].startswith("deleted#") for item in items)

    await eventually(has_left, deadline_s=60, what="the deletion is stored")

    assert await bodies(client, f"/v1/chats/{pair}/messages/active") == ["m2", "m0"]


async def test_sent_list_has_only_messages_that_the_user_may_read(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str, new_name: NewName
) -> None:
    """Messages in chats that the user left are omitted until the user joins again."""
    mine, theirs = caller(alice.user), caller(bob.user)
    left, back, open_ = [await make_group(mine, bob.user) for _ in range(3)]
    for chat, text in ((pair, "direct"), (left, "left"), (back, "before"), (open_, "early")):
        await store(theirs, chat, text)
    for chat in (left, back, open_):
        assert (await theirs.post(f"/v1/chats/{chat}/leave", json={})).status_code == 200
    for chat in (back, open_):
        answer = await mine.post(f"/v1/chats/{chat}/members", json={"users": [bob.user]})
        assert answer.status_code == 201
    answer = await mine.patch(f"/v1/chats/{open_}", json={"history": "all"})
    assert answer.status_code == 200
    ack = await store(theirs, back, "after")

    # `joined` in the directory is a lower bound until Redis has assigned the seq.
    readable = ["after", "early", "before", "direct"]
    await eventually_equal(lambda: bodies(theirs, "/v1/me/sent"), readable)

    query = {"from": ack["ts"]}
    assert await bodies(theirs, "/v1/me/sent", **query) == ["after"]
    between = f"/v1/chats/{back}/messages/between"
    assert await bodies(theirs, between) == ["after", "before"]
    assert await bodies(theirs, between, order="oldest") == ["before", "after"]
    for path in ("between", "active", "1", "around/1", "by-mid/x?seq=1"):
        answer = await theirs.get(f"/v1/chats/{left}/messages/{path}")
        assert problem_of(answer) == (404, "not_found"), path


async def test_received_list_has_messages_of_direct_chats_only(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A message to a group has no receiver."""
    mine, theirs = caller(alice.user), caller(bob.user)
    chat = await make_group(mine, bob.user)
    await store(mine, chat, "to all")
    first = await store(mine, pair, "one")
    await store(theirs, pair, "own")
    await store(mine, pair, "two")

    assert await bodies(theirs, "/v1/me/received", order="oldest") == ["one", "two"]
    assert await bodies(theirs, "/v1/me/received", to=first["ts"]) == ["one"]


async def test_message_is_read_by_seq_or_by_id(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A request with an id needs the seq or ts; with a wrong one the message is not found."""
    mine = caller(alice.user)
    first, second = [await store(mine, pair, text) for text in ("one", "two")]
    path = f"/v1/chats/{pair}/messages"
    of_first = f"{path}/by-mid/{first['mid']}"

    found = [
        await mine.get(f"{path}/{first['seq']}"),
        await mine.get(of_first, params={"seq": first["seq"]}),
        await mine.get(of_first, params={"ts": first["ts"]}),
    ]
    unstored = (await send(mine, pair, "three")).json()
    found_unstored = await mine.get(
        f"{path}/by-mid/{unstored['mid']}", params={"ts": unstored["ts"]}
    )

    assert [each.json()["body"] for each in found] == ["one"] * 3
    assert found_unstored.json()["body"] == "three"
    wrong = [{"seq": second["seq"]}, {"ts": second["ts"]}, {"seq": 99}, {"ts": 99}]
    for reference in wrong:
        assert problem_of(await mine.get(of_first, params=reference)) == (404, "not_found")
    assert problem_of(await mine.get(of_first)) == (400, "bad_request")
    assert problem_of(await mine.get(f"{path}/99")) == (404, "not_found")


async def test_messages_around_a_message_are_contiguous(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """Half of them are before the message; near the ends of the chat there are fewer."""
    client = caller(alice.user)
    for n in range(1, 8):
        await send(client, pair, f"m{n}")

    async def around(seq: int, limit: int) -> tuple[list[str], bool, bool]:
        answer = await client.get(
            f"/v1/chats/{pair}/messages/around/{seq}", params={"limit": limit}
        )
        found = answer.json()
        return [each["body"] for each in found["messages"]], found["older"], found["newer"]

    assert await around(4, 3) == (["m3", "m4", "m5"], True, True)
    assert await around(4, 1) == (["m4"], True, True)
    assert await around(1, 4) == (["m1", "m2", "m3", "m4"], False, True)
    assert await around(7, 4) == (["m5", "m6", "m7"], True, False)
    assert await around(4, 50) == ([f"m{n}" for n in range(1, 8)], False, False)


async def test_api_key_with_scope_reads_messages_of_any_user(
    caller: Caller, stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The list includes messages that a user deleted for themselves."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seqs = [(await store(mine, pair, f"m{n}"))["seq"] for n in range(3)]
    await mine.delete(f"/v1/chats/{pair}/messages/{seqs[0]}")
    await theirs.delete(f"/v1/chats/{pair}/messages/{seqs[1]}", params={"for": "me"})
    host = caller("")
    host.headers["Authorization"] = f"Bearer {await make_key(stack, 'chats:read')}"

    lists = [
        await bodies(host, f"/v1/admin/chats/{pair}/messages"),
        await bodies(host, f"/v1/admin/chats/{pair}/messages/active"),
        await bodies(host, f"/v1/admin/users/{alice.user}/sent"),
        await bodies(host, f"/v1/admin/users/{bob.user}/received"),
    ]
    absent = await host.get("/v1/admin/chats/no-such-chat/messages")

    assert lists == [["m2", "m1"]] * 4
    assert problem_of(absent) == (404, "not_found")


async def test_cursor_is_valid_for_its_own_list_only(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A cursor is refused for another range, order, list or user, and after a change."""
    mine = caller(alice.user)
    for n in range(3):
        await store(mine, pair, f"m{n}")
    path = f"/v1/chats/{pair}/messages/between"
    cursor = (await mine.get(path, params={"limit": 1})).json()["next"]

    right = await mine.get(path, params={"limit": 1, "cursor": cursor})
    wrong = [
        await mine.get(path, params={"cursor": cursor, "order": "oldest"}),
        await mine.get(path, params={"cursor": cursor, "from": 1}),
        await mine.get(f"/v1/chats/{pair}/messages/active", params={"cursor": cursor}),
        await mine.get("/v1/me/sent", params={"cursor": cursor}),
        await caller(bob.user).get(path, params={"cursor": cursor}),
        await mine.get(path, params={"cursor": cursor[:-2] + "AA"}),
    ]

    assert [each["body"] for each in right.json()["items"]] == ["m1"]
    assert [problem_of(each) for each in wrong] == [(400, "bad_request")] * len(wrong)
