"""What people say, call a group or call a file is text in a browser, whatever it is (section 5).

One page is loaded, and a hundred attacks of each kind are on it. They reach it past the rules of
the API, which would refuse most names of files: the page has to be safe without them.
"""

from __future__ import annotations

import time

import pytest
from playwright.async_api import Page, expect

from chatserver.config import Redis
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.domain.text import NAME_CHARS_MAX
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.model import File
from chatserver.hot.redis.factory import open_hot
from tests.e2e.test_web_hostile import PAYLOADS
from tests.e2e.web_support import Arrive, WebStack
from tests.support.rawchat import RawChat

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

FILES_AT_ONCE = 10
GROUPS = 20  # as many chats as a page of the list has
_RUN = "window.__xss=1"
ATTACKS = [text for text in PAYLOADS if "\u0000" not in text and text.isprintable()] + [
    f"<svg/onload={_RUN}>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<math href=javascript:{_RUN}>click</math>",
    f"<object data=javascript:{_RUN}>",
    f"<embed src=javascript:{_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'>",
    f"<input onfocus={_RUN} autofocus>",
    f"<select onfocus={_RUN} autofocus>",
    f"<textarea onfocus={_RUN} autofocus>",
    f"<marquee onstart={_RUN}>",
    f"<audio src=x onerror={_RUN}>",
    f"<style onload={_RUN}></style>",
    f"<img src='x' style='x:expression({_RUN})'>",
    f"\" autofocus onfocus={_RUN} x=\"",
    f"' autofocus onfocus={_RUN} x='",
    f"` onmouseover={_RUN} `",
    f"x onerror={_RUN}",
    f"<a href=\"&#106;avascript:{_RUN}\">x</a>",
    f"<a href=java&Tab;script:{_RUN}>x</a>",
    f"<a href=data:text/html;base64,PHNjcmlwdD4x>{_RUN}</a>",
    f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    f"<IMG SRC=x ONERROR={_RUN}>",
    f"<img src=x onerror\u3000={_RUN}>",
    f"\uff1cscript\uff1e{_RUN}\uff1c/script\uff1e",
    f"<xmp><img src=x onerror={_RUN}></xmp>",
    f"<plaintext><script>{_RUN}</script>",
    f"%3Cscript%3E{_RUN}%3C/script%3E",
    f"[a](javascript:{_RUN}) ![b](x\" onerror=\"{_RUN})",
    "constructor.prototype.__xss",
]  # fmt: skip


async def send_files(web: WebStack, writer: RawChat, chat: str, names: list[str]) -> None:
    """Send files of these names, ten in each message; the API is not asked what it thinks."""
    now = int(time.time())
    async with open_hot(Redis(url=web.stack.redis_url, call_timeout_s=20)) as hot:
        files = SendableFiles(hot)
        for at in range(0, len(names), FILES_AT_ONCE):
            made = [
                File(
                    id=new_id(),
                    owner=UserId(writer.user),
                    chat=ChatId(chat),
                    name=name,
                    type="application/octet-stream",
                    size=10,
                    sha256="0" * 64,
                    created=now,
                    due=now + 600,
                    phase="ready",
                    is_processed=True,
                )
                for name in names[at : at + FILES_AT_ONCE]
            ]
            for file in made:
                await files.put(file, now, is_update=True)
            attachments = [file.id for file in made]
            await writer.say(chat, f"files from {at}", attachments=attachments)


# What no code of the page does, it could not do: its policy requires Trusted Types.
MARKUP = """() => {
  const errorOf = (attempt) => {
    try { attempt(); return "none"; } catch (error) { return error.name; }
  };
  return [
    errorOf(() => (document.body.innerHTML += "<b id=markup>x</b>")),
    errorOf(() => trustedTypes.createPolicy("mine", { createHTML: (text) => text })),
    document.querySelectorAll("#markup").length,
  ];
}"""


async def texts_of(page: Page, selector: str) -> list[str]:
    """The texts of all elements, as they are."""
    texts: list[str] = await page.locator(selector).evaluate_all(
        "all => all.map((one) => one.textContent)"
    )
    return texts


async def test_section_5_a_hundred_attacks_in_texts_names_and_file_names_are_text(
    web: WebStack, arrive: Arrive
) -> None:
    """Each is shown as it was written; none runs, adds an element, or is stopped by the policy."""
    ann, ben = web.new_users(2)
    attacks = list(dict.fromkeys(ATTACKS))
    names = [text for text in attacks if len(text) <= NAME_CHARS_MAX]
    assert len(attacks) >= 100 and len(names) >= 100
    async with web.stack.chat_of(ann) as writer:
        for number, name in enumerate(names[:GROUPS]):
            await writer.ask("create_chat", ref=f"g-{number}", members=[ben], name=name)
        made = await writer.ask("create_chat", ref="board", members=[ben], name="board")
        for number, name in enumerate([*names, "board"]):
            board = made["chat"]["chat"]
            await writer.ask("update_chat", chat=board, ref=f"b-{number}", name=name)
        chat = (await writer.ask("open_direct", user=ben))["chat"]["chat"]
        await send_files(web, writer, chat, attacks)
        for text in attacks:
            await writer.say(chat, text)
    bob = await arrive(ben)
    scripts = await bob.page.locator("script").count()

    await bob.open_chat(ann)
    await expect(bob.bodies).to_have_count(len(attacks) + -(-len(attacks) // FILES_AT_ONCE))

    assert (await texts_of(bob.page, ".message .body"))[-len(attacks) :] == attacks
    assert await texts_of(bob.page, ".message .file-name") == attacks
    assert set(names[:GROUPS]) <= set(await texts_of(bob.page, ".item-title"))
    for selector in (".message .body", ".message .file-name", ".item-title"):
        inside = bob.page.locator(f"{selector} *:not(a):not(bdi):not(br)")
        assert await inside.count() == 0, selector
    handlers = await bob.page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())"
        ".filter((name) => name.startsWith('on') || name === 'srcdoc')"
    )
    assert handlers == []
    assert await bob.page.locator("script").count() == scripts
    assert await bob.page.locator("iframe, object, embed, base, form[action]").count() == 0

    await bob.open_chat("board")
    await expect(bob.timeline).to_contain_text(names[-1])
    told = await bob.timeline.text_content() or ""
    assert [name for name in names if name not in told] == []
    await bob.check_is_clean()
    assert await bob.page.evaluate(MARKUP) == ["TypeError", "TypeError", 0]
