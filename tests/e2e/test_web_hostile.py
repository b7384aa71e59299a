"""Texts and names that want to be more than texts and names, and texts at the bounds."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.web_support import Arrive, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

_RUN = "window.__xss=1"
_TAGS = ["img src=x", "svg", "body", "iframe", "input autofocus", "details open", "video src=x"]
_EVENTS = ["onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onpointerenter"]
_WRAPPERS = [
    "{}",
    '">{}',
    "'>{}",
    "</script>{}",
    "<!--{}-->",
    "]]>{}",
    "`{}",
    "\\u003c{}",
    "{}\u0000",
]
PAYLOADS = [
    *(f"<{tag} {event}={_RUN}>" for tag in _TAGS for event in _EVENTS),
    *(wrapper.format(f"<script>{_RUN}</script>") for wrapper in _WRAPPERS),
    *(wrapper.format(f"<img src=x onerror={_RUN}>") for wrapper in _WRAPPERS),
    f"javascript:{_RUN}",
    f"[click](javascript:{_RUN})",
    f'https://chat.example/"onmouseover="{_RUN}',
    f"https://chat.example/'><script>{_RUN}</script>",
    f"http://javascript:{_RUN}@chat.example/",
    f"JaVaScRiPt:{_RUN} vbscript:{_RUN} data:text/html,<script>{_RUN}</script>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"&#60;img src=x onerror={_RUN}&#62;",
    f"<math><mtext><table><mglyph><style><img src=x onerror={_RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"<template><script>{_RUN}</script></template>",
    f"<a href=javascript:{_RUN}>click</a>",
    f"<base href=//evil.example/><meta http-equiv=refresh content='0;url=javascript:{_RUN}'>",
    "<link rel=stylesheet href=//evil.example/x.css><style>*{background:url(//evil.example)}",
    f"<form action=javascript:{_RUN}><button>x</button></form>",
    "{{constructor.constructor('window.__xss=1')()}}",
    "${window.__xss=1}",
    "<%= window.__xss=1 %>",
    "__proto__",
    "constructor",
    "\u202e<script>window.__xss=1</script>",
    "\ufeff<script>window.__xss=1</script>",
    "<\u200bscript>window.__xss=1</script>",
]


async def test_web_hostile_texts_are_shown_as_they_were_written(
    web: WebStack, arrive: Arrive
) -> None:
    """More than eighty attacks as messages: each is text, none runs, the policy stops nothing."""
    ann, ben = web.new_users(2)
    texts = [text.replace("\u0000", "") for text in PAYLOADS]
    async with web.stack.chat_of(ann) as writer:
        chat = (await writer.ask("open_direct", user=ben))["chat"]["chat"]
        for text in texts:
            await writer.say(chat, text)
    assert len(texts) > 80
    bob = await arrive(ben)

    await bob.open_chat(ann)

    await expect(bob.bodies).to_have_count(len(texts))
    assert await bob.bodies.evaluate_all("all => all.map((one) => one.textContent)") == texts
    links = await bob.page.locator(".body a").evaluate_all(
        "all => all.map((a) => [a.protocol, a.rel, a.target, a.getAttributeNames().length])"
    )
    assert {tuple(link) for link in links} <= {
        (protocol, "noopener noreferrer nofollow", "_blank", 3) for protocol in ("http:", "https:")
    }
    await bob.check_is_clean()


async def test_web_hostile_names_are_shown_as_they_were_written(
    web: WebStack, arrive: Arrive
) -> None:
    """A group's name is text in the list, the head, the title and the dialogs."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    names = [text for text in PAYLOADS if len(text) <= 80 and text.isascii() and "\0" not in text]
    async with web.stack.chat_of(ann) as writer:
        for number, name in enumerate(names[:12]):
            await writer.ask("create_chat", ref=f"group-{number}", members=[ben], name=name)

    for person in (alice, bob):
        titles = person.page.locator(".item-title")
        await expect(titles).to_have_count(12)
        assert set(await titles.all_text_contents()) == set(names[:12])
        await titles.first.click()
        await person.page.get_by_role("button", name="Members").click()
        await person.page.keyboard.press("Escape")
        await person.check_is_clean()


async def test_web_reply_box_and_search_take_hostile_text_as_text(
    web: WebStack, arrive: Arrive
) -> None:
    """What is typed comes back in previews, replies and hints, and stays text."""
    ann, ben = web.new_users(2)
    alice = await arrive(ann)
    text = f"<img src=x onerror={_RUN}>"
    await alice.start_chat(ben)
    await alice.send(text)
    await expect(alice.mark(text)).to_have_text("Sent and stored")

    message = alice.page.locator(".message")
    await message.hover()
    await message.get_by_role("button", name="Reply").click()
    await alice.send(text)
    await alice.page.get_by_label("Search chats and messages").fill(text)

    await expect(alice.page.locator(".quote-text")).to_have_text(text)
    await expect(alice.page.locator(".list-note")).to_contain_text(text)
    await alice.check_is_clean()


async def test_web_text_at_the_limit_is_sent_and_one_more_character_is_not(
    web: WebStack, arrive: Arrive
) -> None:
    """4,000 characters go through, counted as the server counts; at 4,001 one is told."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    count = alice.page.locator(".composer-count")
    longest = "\U0001f642" * 1000 + "w" * 3000

    await alice.write(longest + "w")
    await expect(count).to_have_text("1 character over the limit")
    await alice.field.press("Enter")
    await expect(alice.field).to_have_value(longest + "w")

    await alice.write(longest)
    await expect(count).to_have_text("0 characters left")
    await alice.field.press("Enter")
    await bob.expect_bodies(longest)


async def test_web_spaces_lines_and_scripts_of_all_kinds_arrive_as_written(
    web: WebStack, arrive: Arrive
) -> None:
    """Line breaks, indents, emoji and both writing directions are kept."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    texts = [
        "  indented\n\n\tand tabbed",
        "مرحبا, world",
        "שלום",
        "👩‍👩‍👧‍👦",
        "日本語　全角",
        "a\u0301",
    ]

    for text in texts:
        await alice.send(text)

    await expect(bob.bodies).to_have_count(len(texts))
    shown = await bob.bodies.evaluate_all("all => all.map((one) => one.textContent)")
    assert shown == [*texts[:-1], "\u00e1"]
    sides = await bob.bodies.evaluate_all(
        "all => all.map((one) => getComputedStyle(one).direction)"
    )
    assert sides[1:3] == ["rtl", "rtl"]
    assert sides[0] == "ltr"
