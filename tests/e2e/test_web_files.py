"""Files, as people exchange them through the page: chosen, dropped and pasted, seen and saved."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import signal
import urllib.error
import urllib.request
from typing import Any

import httpx
import pytest
from PIL import Image
from playwright.async_api import FilePayload, Route, expect

from chatserver.client import ChatClient
from chatserver.errors import NotFound
from tests.e2e.web_support import Arrive, Person, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

# Gives the page files as a drag or the clipboard would.
GIVE = """([kind, name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const target = document.querySelector(kind === "drop" ? ".chat-pane" : ".composer-field");
  const event = kind === "drop"
    ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true });
  target.dispatchEvent(event);
}"""

GIVE_LARGE = """() => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(26_300_000)], "film.bin"));
  const drop = { dataTransfer: transfer, bubbles: true, cancelable: true };
  document.querySelector(".chat-pane").dispatchEvent(new DragEvent("drop", drop));
}"""


def picture(colour: str = "teal") -> bytes:
    """Return a photograph of sorts."""
    out = io.BytesIO()
    Image.new("RGB", (640, 320), colour).save(out, "PNG")
    return out.getvalue()


async def choose(person: Person, name: str, type_: str, content: bytes) -> None:
    """Choose a file with the button."""
    async with person.page.expect_file_chooser() as chosen:
        await person.page.get_by_role("button", name="Attach files").click()
    payload: FilePayload = {"name": name, "mimeType": type_, "buffer": content}
    await (await chosen.value).set_files([payload])


async def give(person: Person, kind: str, name: str, type_: str, content: bytes) -> None:
    """Drop or paste a file."""
    data = base64.b64encode(content).decode()
    await person.page.evaluate(GIVE, [kind, name, type_, data])


async def save(person: Person, name: str) -> bytes:
    """Click a file of the timeline and return what the browser saved."""
    button = person.page.locator(".timeline").get_by_role("button", name=f"Download {name}")
    async with person.page.expect_download() as saving:
        await button.click()
    download = await saving.value
    assert download.suggested_filename == name
    return (await download.path()).read_bytes()


async def test_picture_is_uploaded_sent_seen_and_saved_and_refused_to_others(
    web: WebStack, arrive: Arrive
) -> None:
    """Both see a thumbnail and save what was sent; somebody else gets nothing."""
    a, b, c = web.new_users(3)
    ann, ben = await arrive(a), await arrive(b)
    await ann.start_chat(b)
    await choose(ann, "Café am See.png", "image/png", picture())
    send = ann.page.get_by_role("button", name="Send", exact=True)
    await expect(send).to_be_enabled()

    await send.click()
    await ben.open_chat(a)

    for person in (ann, ben):
        image = person.page.locator(".timeline").get_by_role("img", name="Café am See.png")
        await expect(image).to_be_visible()
        await expect(image).to_have_js_property("naturalWidth", 480)
        assert await save(person, "Café am See.png") == picture()
        assert await person.page.evaluate("window.__violations") == []
        assert person.complaints == []
    await check_refused(web, a, b, c)


async def check_refused(web: WebStack, a: str, b: str, outsider: str) -> None:
    """Ask for the newest file of a and b as a member, as somebody else and as nobody."""
    stack = web.stack
    async with ChatClient(f"ws://127.0.0.1:{stack.port}/", stack.token(b)) as client:
        chat = await client.open_direct(a)
        entry = (await client.history(chat.id)).entries[-1]
    url = f"{web.url}v1/attachments/{entry.attachments[0].id}?seq={entry.seq}"

    status, headers = await asyncio.to_thread(ask, url, stack.token(b))

    assert (status, headers["x-content-type-options"]) == (302, "nosniff")
    assert "response-content-disposition=attachment" in headers["location"]
    assert (await asyncio.to_thread(ask, url, stack.token(outsider)))[0] == 404
    assert (await asyncio.to_thread(ask, url, None))[0] == 401


def ask(url: str, token: str | None) -> tuple[int, dict[str, str]]:
    """Return status and headers of an answer; redirects are not followed."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as exc:
        return exc.code, dict(exc.headers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


async def test_files_are_dropped_and_pasted_and_sent_with_a_text(
    web: WebStack, arrive: Arrive
) -> None:
    """What is no picture goes by its name; one can take a file back, and a text may go with it."""
    a, b = web.new_users(2)
    ann, ben = await arrive(a), await arrive(b)
    await ann.start_chat(b)
    await give(ann, "drop", "notes.txt", "text/plain", b"some notes")
    await give(ann, "paste", "page.html", "text/html", b"<script>window.__xss = 1</script>")
    await give(ann, "paste", "oops.txt", "text/plain", b"not this one")
    items = ann.page.locator(".upload-item")
    await expect(items).to_have_count(3)

    await ann.page.get_by_role("button", name="Remove oops.txt").click()
    await ann.write("as promised")
    send = ann.page.get_by_role("button", name="Send", exact=True)
    await expect(send).to_be_enabled()
    await ann.field.press("Enter")
    await expect(items).to_have_count(0)
    await ben.open_chat(a)

    await expect(ben.page.locator(".timeline .file-name")).to_have_text(["notes.txt", "page.html"])
    await expect(ben.bodies).to_have_text(["as promised"])
    assert await save(ben, "page.html") == b"<script>window.__xss = 1</script>"
    assert await ben.page.evaluate("window.__xss") is None
    assert ben.complaints == []


async def test_file_on_its_way_holds_the_message_and_says_so(web: WebStack, arrive: Arrive) -> None:
    """Enter does not send half of it, and is not passed over in silence either."""
    a, b = web.new_users(2)
    ann = await arrive(a)
    await ann.start_chat(b)
    may_go = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_go.wait()
        await route.continue_()

    await ann.page.route("**/v1/chats/*/attachments", hold)
    await choose(ann, "notes.txt", "text/plain", b"some notes")
    await ann.write("as promised")
    await ann.field.press("Enter")

    await expect(ann.page.locator(".upload-limit")).to_contain_text("still being uploaded")
    await expect(ann.field).to_have_value("as promised")
    may_go.set()
    await expect(ann.page.locator(".upload-limit")).to_have_text("", timeout=30_000)
    await ann.field.press("Enter")
    await expect(ann.page.locator(".upload-item")).to_have_count(0)
    await ann.expect_bodies("as promised")
    await ann.check_is_clean()


async def test_file_that_the_server_refuses_is_told_in_words(web: WebStack, arrive: Arrive) -> None:
    """An upload that fails says why, holds back the message, and can be removed."""
    a, b = web.new_users(2)
    ann = await arrive(a)
    await ann.start_chat(b)
    await ann.page.evaluate(GIVE_LARGE)
    await expect(ann.page.locator(".upload-item")).to_contain_text("The maximum size is 26 MB")
    await ann.page.get_by_role("button", name="Remove film.bin").click()

    await choose(ann, "fake.png", "image/png", b"this is no image")

    await expect(ann.page.locator(".upload-item")).to_contain_text("is not image/png")
    send = ann.page.get_by_role("button", name="Send", exact=True)
    await expect(send).to_be_disabled()
    await ann.page.get_by_role("button", name="Remove fake.png").click()
    await ann.write("without it")
    await expect(send).to_be_enabled()


async def test_program_uploads_and_loads_files_with_the_sdk(web: WebStack) -> None:
    """`upload` gives what `send` takes; `download` gives it back to members alone."""
    a, b, c = web.new_users(3)
    stack, api = web.stack, web.url
    url = f"ws://127.0.0.1:{stack.port}/"
    async with (
        ChatClient(url, stack.token(a), api_url=api) as ann,
        ChatClient(url, stack.token(b), api_url=api) as ben,
        ChatClient(url, stack.token(c), api_url=api) as eve,
    ):
        chat = (await ann.open_direct(b)).id
        file = await ann.upload(chat, picture("navy"), name="sea.png")
        ack = await ann.send(chat, "", attachments=[file])

        entry = (await ben.history(chat)).entries[-1]
        assert entry.attachments == [file]
        for text in ("with it", "without it", "with it again"):  # none waits for an answer
            ann.post(chat, text, attachments=[file] if text != "without it" else [])
        last = await ann.send(chat, "the last")
        bodies = [each.body for each in (await ben.history(chat, limit=4)).entries]
        assert bodies == ["with it", "without it", "with it again", "the last"]
        assert last.seq == ack.seq + 4
        assert (file.type, file.width, file.height, file.thumb) == ("image/png", 640, 320, True)
        assert await ben.download(file, seq=ack.seq) == picture("navy")
        assert (await ben.download(file, seq=ack.seq, is_thumb=True))[8:12] == b"WEBP"
        for refused in (eve.download(file, seq=ack.seq), eve.upload(chat, b"x", name="x")):
            with pytest.raises(NotFound):
                await refused
        with pytest.raises(NotFound):
            await ann.upload(chat, "/nowhere/at-all.png")


async def send_at_once(web: WebStack, sender: str, chat: str, content: bytes) -> str:
    """Send a picture by HTTP without waiting for its thumbnail; return its id."""
    headers = {"Authorization": f"Bearer {web.stack.token(sender)}"}
    digest = hashlib.sha256(content).hexdigest()
    about = {"name": "late.png", "type": "image/png", "size": len(content), "sha256": digest}
    async with httpx.AsyncClient(base_url=web.url, headers=headers, timeout=20) as client:

        async def post(path: str, body: Any) -> Any:
            answer = await client.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        form = await post(f"/v1/chats/{chat}/attachments", about)
        file: str = form["id"]
        async with httpx.AsyncClient(timeout=20) as s3:
            uploaded = await s3.post(form["url"], data=form["fields"], files={"file": content})
        assert uploaded.is_success, uploaded.text
        done = await post(f"/v1/attachments/{file}/complete", {})
        assert not done["looked_at"]
        await post(f"/v1/chats/{chat}/messages", {"body": "", "attachments": [file]})
    return file


async def test_thumbnail_that_comes_after_its_message_is_shown(
    web: WebStack, arrive: Arrive
) -> None:
    """The picture takes the place of the file's name, in the page that shows it and in the SDK."""
    a, b = web.new_users(2)
    ben = await arrive(b)
    await ben.start_chat(a)
    url = f"ws://127.0.0.1:{web.stack.port}/"
    async with ChatClient(url, web.stack.token(b), api_url=web.url) as client:
        chat = (await client.open_direct(a)).id
        workers = next(iter(web.stack.workers.values()))  # other tests may have started more
        workers.send_signal(signal.SIGSTOP)
        try:
            file = await send_at_once(web, a, chat, picture())
            plain = ben.page.locator(".timeline .file-name")
            await expect(plain).to_have_text(["late.png"])
            early = await client.describe(file, seq=1)
        finally:
            workers.send_signal(signal.SIGCONT)

        image = ben.page.locator(".timeline").get_by_role("img", name="late.png")
        await expect(image).to_be_visible()
        await expect(image).to_have_js_property("naturalWidth", 480)
        late = await client.describe(file, seq=1)

    assert (early.thumb, late.thumb, late.width, late.height) == (False, True, 640, 320)
    await expect(plain).to_have_count(0)
    assert ben.complaints == []
