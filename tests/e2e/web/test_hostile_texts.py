"""Hostile texts and names are shown as text; texts at the limits arrive unchanged."""

from __future__ import annotations

import re

from playwright.async_api import expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.conversation_support import fill_chat
from tests.e2e.web.pages_support import open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack

RUN = "window.__xss=1"
IMAGE = f"<img src=x onerror={RUN}>"
TAGS = ["img src=x", "svg", "body", "iframe", "input autofocus", "details open", "video src=x"]
EVENTS = ["onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onpointerenter"]
WRAPPERS = ["{}", '">{}', "'>{}", "</script>{}", "<!--{}-->", "]]>{}", "`{}", "\\u003c{}"]
PAYLOADS = [
    *(f"<{tag} {event}={RUN}>" for tag in TAGS for event in EVENTS),
    *(wrapper.format(f"<script>{RUN}</script>") for wrapper in WRAPPERS),
    *(wrapper.format(IMAGE) for wrapper in WRAPPERS),
    f"javascript:{RUN}",
    f"[click](javascript:{RUN})",
    f"[click](data:text/html,<script>{RUN}</script>)",
    f"<javascript:{RUN}>",
    f"![{IMAGE}](x)",
    f'https://chat.example/"onmouseover="{RUN}',
    f"https://chat.example/'><script>{RUN}</script>",
    f"http://javascript:{RUN}@chat.example/",
    f"JaVaScRiPt:{RUN} vbscript:{RUN} data:text/html,<script>{RUN}</script>",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;img src=x onerror={RUN}&#62;",
    f"<math><mtext><table><mglyph><style>{IMAGE}",
    f"<noscript><p title='</noscript>{IMAGE}'>",
    f"<template><script>{RUN}</script></template>",
    f"<a href=javascript:{RUN}>click</a>",
    f"<base href=//evil.example/><meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    "<link rel=stylesheet href=//evil.example/x.css><style>p{background:url(//evil.example)}",
    f"<form action=javascript:{RUN}><button>x</button></form>",
    "{{constructor.constructor('window.__xss=1')()}}",
    "${window.__xss=1}",
    "<%= window.__xss=1 %>",
    "constructor",
    f"\u202e<script>{RUN}</script>",
    f"\ufeff<script>{RUN}</script>",
    f"<\u200bscript>{RUN}</script>",
]
# Messages with Markdown, and the expected result.
FORMATTED = {
    f"[{IMAGE}](https://chat.example/)": IMAGE,
    f"**{IMAGE}** `{IMAGE}`": f"{IMAGE} {IMAGE}",
    f"```\n{IMAGE}\n```": IMAGE,
    f"> {IMAGE}\n\n- {IMAGE}": f"{IMAGE}\n\n{IMAGE}",
}
LINKS = """() => [...document.querySelectorAll('[role="log"] a[target]')].map((link) =>
  [link.protocol, link.rel, link.target])"""


async def test_hostile_texts_are_shown_as_written(web: WebStack, visit: Visit) -> None:
    """Eighty attacks are shown as text. None runs or violates the policy."""
    ann, ben = web.new_users(2)
    texts = [*PAYLOADS, *FORMATTED]
    async with web.stack.chat_of(ann) as writer:
        chat = await writer.open_direct(ben)
        await fill_chat(writer, chat, len(texts), lambda number: texts[number - 1])
    assert len(texts) > 80
    bob = await visit(ben)
    await bob.open_chat(ann)
    await expect(bob.messages("<").last).to_be_visible()

    await bob.expect_texts(*PAYLOADS, *FORMATTED.values())
    links = {tuple(link) for link in await bob.page.evaluate(LINKS)}
    assert links <= {
        (protocol, "noopener noreferrer nofollow", "_blank") for protocol in ("http:", "https:")
    }
    await bob.check_is_clean(had_outage=True)  # chat.example has no preview


async def test_hostile_names_are_shown_as_written(web: WebStack, visit: Visit) -> None:
    """Names of a group and a user are shown in lists, headers, details, quotes, pins and search."""
    ann, ben = web.new_users(2)
    name = f"{IMAGE}</title><script>{RUN}</script>"
    async with open_caller(web, ann) as a, open_caller(web, ben) as b:
        await b.call("PATCH", "/v1/me", {"name": IMAGE})
        group = await a.create_group(name, ben)
        direct = await a.open_direct(ben)
        seq = await b.send(group, f"zeppelin {IMAGE}")
        await b.send(direct, IMAGE)
        await a.call("PUT", f"/v1/chats/{group}/pins/{seq}")
    alice = await visit(ann)
    page = alice.page
    rows = page.get_by_role("list", name="All chats").get_by_role("listitem")
    await expect(rows).to_have_count(2)
    await expect(rows.filter(has_text=name)).to_contain_text(f"zeppelin {IMAGE}")
    await rows.filter(has_not_text=name).get_by_role("link").click()
    await expect(page.get_by_role("heading", name=IMAGE)).to_be_visible()
    await alice.open_chat(name)
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    await expect(alice.messages("zeppelin").get_by_role("link", name=IMAGE)).to_be_visible()
    pinned = page.get_by_role("button", name=re.compile("^Pinned message"))
    await expect(pinned).to_contain_text(IMAGE)

    await alice.choose("zeppelin", "Reply")
    await expect(page.get_by_text(f"Replying to {IMAGE}")).to_be_visible()
    await alice.send(f"an answer {IMAGE}")
    quote = alice.messages("an answer").get_by_role("button").filter(has_text="zeppelin")
    await expect(quote).to_contain_text(f"{IMAGE}zeppelin {IMAGE}")
    await page.goto(f"{alice.url}chats/{group}/details")
    await expect(page.get_by_role("region", name="Group info")).to_contain_text(name)
    await expect(page.get_by_role("listitem").filter(has_text=IMAGE).last).to_be_visible()
    await page.goto(f"{alice.url}people/{ben}")
    await expect(page.get_by_role("heading", level=1, name=IMAGE)).to_be_visible()
    await page.goto(f"{alice.url}search?chat={group}")
    await expect(page.get_by_role("button", name=f"Remove filter In chat: {name}")).to_be_visible()
    field = page.get_by_label("Search messages")
    results = page.get_by_role("list", name="Search results").get_by_role("listitem")
    await field.fill("zeppelin")
    for _ in range(PATIENCE_MS // 1_000):  # indexing takes seconds
        if await results.count():
            break
        await page.wait_for_timeout(1_000)
        await page.reload()
    await expect(results.first).to_contain_text(f"zeppelin {IMAGE}")
    await expect(results.first.locator("mark")).to_have_text("zeppelin")
    await alice.check_is_clean()


async def test_texts_at_the_limit_and_of_all_scripts_arrive_as_written(
    web: WebStack, visit: Visit
) -> None:
    """4,000 characters, one more, spaces, lines, emoji and both directions of writing are kept."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann), await visit(ben)
    await alice.start_chat(ben)
    texts = {
        "  indented  twice\n\n\tand tabbed\n  \n": "  indented  twice\n\n\tand tabbed",
        "مرحبا, world": "مرحبا, world",
        "שלום": "שלום",
        "👩‍👩‍👧‍👦": "👩‍👩‍👧‍👦",
        "日本語　全角": "日本語　全角",
        "a\u0301\u0007": "\u00e1",
    }
    await alice.send(*texts)
    await bob.open_chat(ann)
    await bob.expect_texts(*texts.values())
    for text, direction in (("مرحبا", "rtl"), ("שלום", "rtl"), ("indented", "ltr")):
        shown = bob.messages(text).locator("p").first
        assert await shown.evaluate("(p) => getComputedStyle(p).direction") == direction
    indented = bob.messages("indented").locator("p").first
    assert await indented.evaluate("(p) => getComputedStyle(p).whiteSpace") == "pre-wrap"

    longest = "\U0001f642" * 1000 + "w" * 3000
    await alice.field.fill(longest + "w")
    await expect(alice.page.get_by_text("1 character too long")).to_be_visible()
    await alice.field.press("Enter")
    await expect(alice.field).to_have_value(longest + "w")
    await alice.send(longest)
    shown = bob.messages("w" * 3000)
    await bob.page.get_by_role("button", name="Show more").click()
    await expect(shown.locator("p")).to_contain_text(longest)
    for person in (alice, bob):
        await person.check_is_clean()
