"""Search over HTTP: permissions, queries, pages, and changes of messages."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.features.search.support import (
    NewPerson,
    SearchStack,
    make_group,
    search,
    search_texts,
    wait_for_results,
)
from tests.support.text_corpus import CORPUS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_message_is_found_by_members_with_a_snippet(new_person: NewPerson) -> None:
    """A user who is not a member does not find it, with or without the chat in the query."""
    ann, ben, eve = await new_person("ann"), await new_person("ben"), await new_person("eve")
    chat = await ann.open_direct(ben.user)
    seq = await ann.send(chat, 'Lunch at the <b>Größe</b> & "Café"?')

    await wait_for_results(ben, "grosse cafe")
    page = await search(ann, 'lunch "grosse b"')
    await eve.request("GET", f"/v1/search?q=lunch+in:{chat}", 404)

    (item,) = page["items"]
    assert (item["message"]["chat"], item["message"]["seq"]) == (chat, seq)
    assert item["snippet"] == [
        {"text": "Lunch", "hit": True},
        {"text": " at the <b>"},
        {"text": "Größe</b", "hit": True},
        {"text": '> & "Café"?'},
    ]
    assert await search_texts(eve, "lunch") == []


async def test_languages_without_spaces_are_found(new_person: NewPerson) -> None:
    """Chinese, Japanese and Thai texts are found by a part of the text."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for body in ("明天我们去东京都吃饭", "すぐ行くから待って", "สวัสดีครับ"):
        await ann.send(chat, body)

    for query in ("东京", "行く", "都吃", "待", "สวัสดี"):
        assert len(await wait_for_results(ben, query)) == 1
    assert await search_texts(ben, "京东") == []


async def test_texts_in_all_scripts_are_found(new_person: NewPerson) -> None:
    """Each query of the corpus finds its text, and no query finds a text that it must not."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    seqs = {case.script: await ann.send(chat, case.text) for case in CORPUS}
    await wait_for_results(ann, f"in:{chat}", len(CORPUS))

    wrong = []
    for case in CORPUS:
        for query, is_expected in (
            *((query, True) for query in case.found),
            *((query, False) for query in case.missed),
        ):
            page = await search(ann, query, limit=50)
            found = {item["message"]["seq"] for item in page["items"]}
            if (seqs[case.script] in found) != is_expected:
                wrong.append((case.script, query))
    assert wrong == []


async def test_search_filters_and_orders_results(new_person: NewPerson) -> None:
    """Filters are sender, chat, file and time; the order is newest first or by relevance."""
    ann, ben = await new_person("ann"), await new_person("ben")
    direct = await ann.open_direct(ben.user)
    group = await make_group(ann, ben.user)
    await ann.send(direct, "apple apple apple")
    await ben.send(group, "one apple among many other words in a long text about nothing")
    file = await ann.upload(direct, b"content", "notes.txt")
    await ann.send(direct, "apple file", attachments=[file])
    await wait_for_results(ann, "apple", 3)

    assert await search_texts(ann, "apple from:me") == ["apple file", "apple apple apple"]
    assert len(await search_texts(ann, f"apple from:{ben.user}")) == 1
    assert len(await search_texts(ann, f"in:{group} apple")) == 1
    assert await search_texts(ann, "has:file") == ["apple file"]
    assert await search_texts(ann, "apple before:2020-01-01") == []
    assert len(await search_texts(ann, "apple after:2020-01-01")) == 3
    assert (await search_texts(ann, "apple", order="relevance"))[0] == "apple apple apple"
    assert (await search_texts(ann, "apple"))[0] == "apple file"


@pytest.mark.parametrize("order", ["newest", "relevance"])
async def test_search_pages_have_each_result_once(new_person: NewPerson, order: str) -> None:
    """A cursor is valid only for its user."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chats = [await ann.open_direct(ben.user), await make_group(ann, ben.user)]
    sent = {f"pear number {n}" for n in range(23)}
    for n in range(23):
        await ann.send(chats[n % 2], f"pear number {n}")
    await wait_for_results(ann, "pear", 23)

    found: list[str] = []
    cursor: str | None = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = await search(ann, "pear", limit=5, order=order, **more)
        found += [each["message"]["body"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    await ben.request("GET", f"/v1/search?q=pear&order={order}&cursor={cursor}", 400)

    assert len(found) == 23
    assert set(found) == sent
    if order == "newest":
        assert found[:2] == ["pear number 22", "pear number 21"]


async def test_search_finds_only_messages_that_the_member_may_read(
    new_person: NewPerson,
) -> None:
    """Messages from before the user joined and after the user left are not found."""
    ann, ben, cat = await new_person("ann"), await new_person("ben"), await new_person("cat")
    chat = await make_group(ann, cat.user)
    await ann.request("PATCH", f"/v1/chats/{chat}", 200, {"history": "joined"})
    await ann.send(chat, "plum before")
    await ann.request("POST", f"/v1/chats/{chat}/members", 201, {"users": [ben.user]})
    await ann.send(chat, "plum between")
    await wait_for_results(ann, "plum", 2)
    as_member = await wait_for_results(ben, "plum")
    await ben.request("POST", f"/v1/chats/{chat}/leave", 200)

    assert as_member == ["plum between"]
    assert await search_texts(ben, "plum") == []


async def test_edited_deleted_and_expired_messages_are_not_found(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """Old text is not found once the change is acked. New text is found shortly after."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    edited = await ann.send(chat, "kiwi original")
    deleted = await ann.send(chat, "kiwi deleted")
    hidden = await ann.send(chat, "kiwi hidden")
    await ann.send(chat, "kiwi expiring", expires_s=5)
    await wait_for_results(ben, "kiwi", 4)

    await ann.request("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, {"body": "kiwi changed"})
    await ann.request("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)
    await ben.request("DELETE", f"/v1/chats/{chat}/messages/{hidden}?for=me", 200)
    assert await search_texts(ben, "kiwi original") == []
    assert await search_texts(ben, "kiwi deleted") == []
    assert await search_texts(ben, "kiwi hidden") == []
    await wait_for_results(ben, "kiwi changed")
    await wait_for_results(ann, "kiwi hidden")
    await wait_for_results(ann, "kiwi expiring", 0)


async def test_messages_of_blocked_users_are_left_out(new_person: NewPerson) -> None:
    """Messages in a common group are left out too."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await make_group(ann, ben.user)
    await ben.send(chat, "fig from ben")
    await ann.send(chat, "fig from ann")
    await wait_for_results(ann, "fig", 2)

    await ann.request("PUT", f"/v1/me/blocks/{ben.user}", 204)

    assert await search_texts(ann, "fig") == ["fig from ann"]


async def test_invalid_search_query_is_refused(new_person: NewPerson) -> None:
    """This tests one query of each kind; the unit tests have all cases."""
    ann = await new_person("ann")
    for query in ("q=", "q=%22open", "q=has:x", "q=x&limit=51", "q=x&order=best", "", "q=x&p=1"):
        await ann.request("GET", f"/v1/search?{query}", 400)


async def test_message_is_found_within_two_seconds(new_person: NewPerson) -> None:
    """This also holds if the indexer was idle before."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    await ann.send(chat, "warm up")
    await wait_for_results(ann, "warm up")
    loop = asyncio.get_running_loop()
    delays = []
    for n in range(5):
        await ann.send(chat, f"quince {n}")
        began = loop.time()
        await wait_for_results(ben, f'"quince {n}"')
        delays.append(loop.time() - began)

    assert sorted(delays)[2] < 2.0, delays
