"""Moderation over HTTP, and routes for admins and the host application."""

from __future__ import annotations

from tests.integration.api.support import Caller, make_group, problem_of, send
from tests.security.support.users import make_key
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack


async def test_mutes_and_bans_over_http_are_for_group_admins(
    caller: Caller, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """The owner mutes, bans and lists bans; a member is refused."""
    owner, member = caller(alice.user), caller(bob.user)
    chat = await make_group(owner, bob.user)
    muting, banning = f"/v1/chats/{chat}/members/{bob.user}/mute", f"/v1/chats/{chat}/bans"

    not_by_members = [
        await member.put(f"/v1/chats/{chat}/members/{alice.user}/mute", json={}),
        await member.put(f"{banning}/{alice.user}"),
        await member.get(banning),
        await member.get(f"/v1/chats/{chat}/reports"),
    ]
    muted = (await owner.put(muting, json={"mute_s": 3600})).json()
    refused = await send(member, chat, "hello?")
    await owner.put(muting, json={"mute_s": 0})
    sent = await send(member, chat, "hello")
    await owner.put(f"{banning}/{bob.user}")
    bans = (await owner.get(banning)).json()["items"]
    by_a_stranger = await member.get(banning)
    await owner.delete(f"{banning}/{bob.user}")

    assert [problem_of(answer) for answer in not_by_members] == [(403, "forbidden")] * 4
    assert bob.user in muted["muted"]
    assert problem_of(refused) == (403, "forbidden")
    assert int(refused.headers["retry-after"]) > 3000
    assert sent.status_code == 201
    assert [(ban["user"], ban["by"]) for ban in bans] == [(bob.user, alice.user)]
    assert problem_of(by_a_stranger) == (404, "not_found")
    assert (await owner.get(banning)).json()["items"] == []


async def test_reports_over_http_are_listed_and_resolved_by_the_owner(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """The list has pages. A member is refused, and the owner cannot list reports of all chats."""
    owner, member = caller(alice.user), caller(bob.user)
    chat = await make_group(owner, bob.user)
    for number in range(3):
        await send(owner, chat, str(number))
        await member.put(f"/v1/chats/{chat}/messages/{number + 1}/report", json={"reason": "rude"})
    absent = await member.put(f"/v1/chats/{chat}/messages/99/report", json={})

    first = (await owner.get(f"/v1/chats/{chat}/reports?limit=2")).json()
    rest = (await owner.get(f"/v1/chats/{chat}/reports?limit=2&cursor={first['next']}")).json()
    path = f"/v1/chats/{chat}/reports/1/{bob.user}/resolve"
    by_member = await member.post(path)
    resolved = await owner.post(path)
    page = (await owner.get(f"/v1/chats/{chat}/reports")).json()
    of_all_chats = await owner.get("/v1/admin/reports")

    assert [item["seq"] for item in first["items"] + rest["items"]] == [1, 2, 3]
    assert rest["next"] is None
    assert first["items"][0]["reason"] == "rude"
    assert problem_of(absent) == (404, "not_found")
    assert problem_of(by_member) == (403, "forbidden")
    assert resolved.status_code == 204
    assert [(item["state"], item["resolved_by"]) for item in page["items"]] == [
        ("resolved", alice.user),
        ("open", None),
        ("open", None),
    ]
    assert problem_of(of_all_chats)[0] == 403


async def test_open_reports_are_listed_for_the_host_in_both_orders(
    caller: Caller, stack: Stack, alice: RawChat, bob: RawChat
) -> None:
    """The list has pages; a cursor is valid for its own order only."""
    owner, member = caller(alice.user), caller(bob.user)
    chat = await make_group(owner, bob.user)
    for number in range(3):
        await send(owner, chat, str(number))
        await member.put(f"/v1/chats/{chat}/messages/{number + 1}/report", json={})
    host = caller("")
    host.headers["Authorization"] = f"Bearer {await make_key(stack, 'moderate')}"
    path = "/v1/admin/reports?limit=2"

    async def seqs(order: str) -> list[int]:
        found, after = [], ""
        while True:
            page = (await host.get(f"{path}&order={order}{after}")).json()
            found += [item["seq"] for item in page["items"] if item["chat"] == chat]
            if page["next"] is None:
                return found
            after = f"&cursor={page['next']}"

    first = (await host.get(path)).json()
    mixed = await host.get(f"{path}&order=newest&cursor={first['next']}")

    assert await seqs("oldest") == [1, 2, 3]
    assert await seqs("newest") == [3, 2, 1]
    assert problem_of(mixed) == (400, "bad_request")
