"""User content in a browser is shown as text: messages, group names and file names (section 5).

One page shows a hundred attacks of each kind. File names bypass the checks of the API, which would
refuse most of them: the page must be safe without these checks.
"""

from __future__ import annotations

import time

import pytest
from playwright.async_api import expect

from chatserver.config import Redis
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.domain.text_validation import NAME_CHARS_MAX
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.model import File
from chatserver.hot.redis.factory import open_hot
from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.stack_support import WebStack
from tests.e2e.web.test_hostile_texts import PAYLOADS
from tests.support.rawchat import RawChat

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILES_AT_ONCE = 10
GROUPS = 6  # as many as a window shows without scrolling
_RUN = "window.__xss=1"
ATTACKS = [text for text in PAYLOADS if text.isprintable()] + [
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
    """Send files with these names, ten per message, bypassing the checks of the API."""
    now = int(time.time())
    async with open_hot(Redis(url=web.stack.redis_url, call_timeout_s=20)) as hot:
        files = SendableFiles(hot)
        for at in range(0, len(names), FILES_AT_ONCE):
            batch = [
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
            for file in batch:
                await files.put(file, now, is_update=True)
            attachments = [file.id for file in batch]
            await writer.send(chat, f"files from {at}", attachments=attachments)


# The page cannot insert markup from text, because its policy requires Trusted Types.
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


# Scrolls to the last message and to the first. Returns the texts of all messages by seq, and all
# names of elements and attributes in the list of messages.
READ_ALL = """async (last) => {
  const list = document.querySelector('[role="log"]');
  const texts = {}, elements = new Set(), attributes = new Set();
  for (const [end, stepPx] of [[last, 400], [1, -400]]) {
    while (!(end in texts)) {
      list.scrollTop += stepPx;
      await new Promise(requestAnimationFrame);
      for (const row of list.querySelectorAll("[data-seq]"))
        texts[row.dataset.seq] = row.textContent;
      for (const each of list.querySelectorAll("*")) {
        elements.add(each.localName);
        for (const name of each.getAttributeNames()) attributes.add(name);
      }
    }
  }
  return [texts, [...elements], [...attributes]];
}"""
DANGEROUS = {
    *("script", "iframe", "object", "embed", "base", "form", "style", "link", "meta", "math"),
    *("img", "audio", "video", "select", "textarea", "marquee", "details", "animate"),
}


def letters_of(text: str) -> str:
    """Return only letters and digits, because Markdown removes some other characters."""
    return "".join(filter(str.isalnum, text))


async def read_chat(person: Visitor, title: str, last: int) -> dict[int, str]:
    """Open a chat; return the letters of its messages by seq. Check that no text became markup."""
    await person.open_chat(title)
    await expect(person.page.get_by_role("log").get_by_role("article").first).to_be_visible()
    texts, elements, attributes = await person.page.evaluate(READ_ALL, last)
    assert set(elements) & DANGEROUS == set()
    assert {name for name in attributes if name.startswith("on") or name == "srcdoc"} == set()
    return {int(seq): letters_of(text) for seq, text in texts.items()}


async def test_section_5_attacks_in_messages_names_and_file_names_are_shown_as_text(
    web: WebStack, visit: Visit
) -> None:
    """Each is shown as written. None runs, adds an element or triggers the policy."""
    ann, ben = web.new_users(2)
    attacks = list(dict.fromkeys(ATTACKS))
    names = [text for text in attacks if len(text) <= NAME_CHARS_MAX]
    assert len(attacks) >= 100 and len(names) >= 100
    async with web.stack.chat_of(ann) as writer:
        for number, name in enumerate(names[:GROUPS]):
            await writer.request("create_chat", ref=f"g-{number}", members=[ben], name=name)
        board = await writer.create_group([ben], ref="board", name="board")
        for number, name in enumerate([*names, "board"]):
            await writer.request("update_chat", chat=board, ref=f"b-{number}", name=name)
        chat = await writer.open_direct(ben)
        await send_files(web, writer, chat, attacks)
        for text in attacks:
            await writer.send(chat, text)
        ends = [(await writer.read_page(each))["messages"][-1]["seq"] for each in (chat, board)]
    bob = await visit(ben)
    scripts = await bob.page.locator("script").count()
    for name in names[:GROUPS]:
        await expect(bob.page.get_by_role("link").filter(has_text=name).first).to_be_visible()

    files = -(-len(attacks) // FILES_AT_ONCE)  # the messages with files come first
    shown = await read_chat(bob, ann, ends[0])
    for number, text in enumerate(attacks):
        assert letters_of(text) in shown[files + number + 1]
        assert letters_of(text) in shown[number // FILES_AT_ONCE + 1]
    notes = "".join((await read_chat(bob, "board", ends[1])).values())
    assert [name for name in names if letters_of(name) not in notes] == []
    assert await bob.page.locator("script").count() == scripts
    assert await bob.page.locator("iframe, object, embed, base, form[action]").count() == 0
    assert await bob.page.evaluate("window.__xss") is None
    await bob.check_is_clean(had_outage=True)  # addresses in texts have no preview, which is a 404
    assert await bob.page.evaluate(MARKUP) == ["TypeError", "TypeError", 0]
