"""Files in the web client: choosing, dropping, pasting, recording, viewing and saving."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import re
import signal

import httpx
from PIL import Image
from playwright.async_api import FilePayload, Page, Route, expect

from chatserver.client import ChatClient
from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.pages_support import make_picture, open_caller, record_video
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.image_corpus import SIZE, make_phone_heic
from tests.support.servers.processes import eventually

# Gives the page a file, as a drag or the clipboard does.
GIVE = """([kind, name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "drop"
    ? new DragEvent("drop", { dataTransfer: transfer, ...options })
    : new ClipboardEvent("paste", { clipboardData: transfer, ...options });
  document.querySelector(kind === "drop" ? '[role="log"]' : "textarea").dispatchEvent(event);
}"""
GIVE_LARGE = """(size) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(size)], "film.bin"));
  const drop = { dataTransfer: transfer, bubbles: true, cancelable: true };
  document.querySelector('[role="log"]').dispatchEvent(new DragEvent("drop", drop));
}"""
IS_PLAYED = "(kind) => document.querySelector(kind)?.currentTime > 0"


def payload(name: str, type_: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": type_, "buffer": content}


async def wait_until_played(person: Visitor, player: str) -> None:
    """Wait until a player has played something; the page's policy forbids `wait_for_function`."""

    async def is_played() -> bool:
        return bool(await person.page.evaluate(IS_PLAYED, player))

    await eventually(is_played, PATIENCE_MS / 1000, what=f"{player} plays")


async def attach(person: Visitor, *files: FilePayload) -> None:
    async with person.page.expect_file_chooser() as chosen:
        await person.page.get_by_role("button", name="Attach files").click()
    await (await chosen.value).set_files(list(files))


async def insert_file(person: Visitor, kind: str, name: str, type_: str, content: bytes) -> None:
    """Drop or paste a file."""
    data = base64.b64encode(content).decode()
    await person.page.evaluate(GIVE, [kind, name, type_, data])


async def save(page: Page, button: str, name: str) -> bytes:
    """Press a button and return the file that the browser saved."""
    async with page.expect_download() as saving:
        await page.get_by_role("button", name=button).click()
    download = await saving.value
    assert download.suggested_filename == name
    return (await download.path()).read_bytes()


async def test_picture_is_viewed_and_saved_by_members_and_refused_to_others(
    web: WebStack, visit: Visit
) -> None:
    """A thumbnail in the chat and the full picture in the viewer, by keyboard."""
    a, b, c = web.new_users(3)
    ann, ben = await visit(a), await visit(b)
    await ann.start_chat(b)
    large = io.BytesIO()
    Image.new("RGB", (640, 320), "teal").save(large, "PNG")
    await attach(ann, payload("Café am See.png", "image/png", large.getvalue()))
    await ann.page.get_by_role("button", name="Send", exact=True).click()
    await expect(ann.page.get_by_role("log").get_by_label("Open image Café")).to_be_visible()
    await attach(ann, payload("second.png", "image/png", make_picture("navy")))
    await ann.send("and another one")
    await ben.open_chat(a)

    for person in (ann, ben):
        page = person.page
        tile = page.get_by_role("button", name="Open image Café am See.png")
        await expect(tile.locator("img")).to_have_js_property("complete", value=True)
        await tile.focus()
        await page.keyboard.press("Enter")
        viewer = page.get_by_role("dialog", name="Media viewer")
        image = viewer.get_by_role("img", name="Image: Café am See.png")
        await expect(image).to_have_js_property("naturalWidth", 640)
        await page.keyboard.press("+")
        await expect(image).to_have_css("transform", "matrix(1.4, 0, 0, 1.4, 0, 0)")
        await page.keyboard.press("0")
        await expect(image).to_have_css("transform", "matrix(1, 0, 0, 1, 0, 0)")
        await page.keyboard.press("ArrowRight")
        await expect(viewer.get_by_role("img", name="Image: second.png")).to_be_visible()
        await expect(viewer.get_by_text("2 of 2")).to_be_visible()
        await expect(viewer.get_by_text(a, exact=True)).to_be_visible()
        await page.keyboard.press("ArrowLeft")
        await expect(image).to_be_visible()
        assert await save(page, "Download", "Café am See.png") == large.getvalue()
        await page.keyboard.press("Escape")
        await expect(viewer).to_have_count(0)
        await expect(tile).to_be_focused()
        await person.check_is_clean()
    thumb = ben.page.get_by_role("button", name="Open image Café am See.png").locator("img")
    await expect(thumb).to_have_js_property("naturalWidth", 480)  # the owner gets the original
    await check_refused(web, a, b, c)


async def test_picture_that_browsers_cannot_show_appears_as_its_thumbnail(
    web: WebStack, visit: Visit
) -> None:
    """A HEIC, for sender and receiver, in the chat and in the viewer; the type is unknown."""
    a, b = web.new_users(2)
    ann, ben = await visit(a), await visit(b)
    await ann.start_chat(b)
    await attach(ann, payload("IMG_1.HEIC", "", make_phone_heic()))
    await ann.send("from my phone")
    await ben.open_chat(a)

    for person in (ann, ben):
        tile = person.page.get_by_role("button", name="Open image IMG_1.HEIC")
        await expect(tile.locator("img")).to_have_js_property("naturalWidth", SIZE[1])
        await tile.click()
        viewer = person.page.get_by_role("dialog", name="Media viewer")
        image = viewer.get_by_role("img", name="Image: IMG_1.HEIC")
        await expect(image).to_have_js_property("naturalHeight", SIZE[0])
        await expect(viewer.get_by_role("alert")).to_have_count(0)
        assert await save(person.page, "Download", "IMG_1.HEIC") == make_phone_heic()
        await person.check_is_clean()


async def check_refused(web: WebStack, a: str, b: str, outsider: str) -> None:
    """Request the newest file as a member, as another user and without a login."""
    stack = web.stack
    async with ChatClient(f"ws://127.0.0.1:{stack.port}/", stack.token(b)) as client:
        chat = await client.open_direct(a)
        entry = (await client.history(chat.id)).entries[-1]
    path = f"/v1/attachments/{entry.attachments[0].id}?seq={entry.seq}"
    async with httpx.AsyncClient(base_url=web.url, timeout=60) as http:

        async def request_file(token: str | None) -> httpx.Response:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return await http.get(path, headers=headers)

        answer = await request_file(stack.token(b))
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (302, "nosniff")
        assert "response-content-disposition=attachment" in answer.headers["location"]
        assert (await request_file(stack.token(outsider))).status_code == 404
        assert (await request_file(None)).status_code == 401


async def test_dropped_and_pasted_files_are_uploaded_removed_or_refused(
    web: WebStack, visit: Visit
) -> None:
    """A message waits for its uploads, a file can be removed, and a refusal shows the reason."""
    a, b = web.new_users(2)
    ann, ben = await visit(a, service_workers="block"), await visit(b)
    await ann.start_chat(b)
    page, is_released = ann.page, asyncio.Event()
    uploads = page.get_by_role("button", name="Remove")

    async def hold(route: Route) -> None:
        await is_released.wait()
        await route.continue_()

    await page.route("**/v1/chats/*/attachments", hold)
    await insert_file(ann, "drop", "notes.txt", "text/plain", b"some notes")
    await insert_file(ann, "paste", "page.html", "text/html", b"<script>window.__xss = 1</script>")
    await insert_file(ann, "paste", "oops.txt", "text/plain", b"not this one")
    await expect(uploads).to_have_count(3)
    await expect(page.get_by_role("progressbar")).to_have_count(3)
    await page.get_by_role("button", name="Remove oops.txt").click()
    await ann.field.fill("as promised")
    await ann.field.press("Enter")
    waiting = page.get_by_text("The message will be sent when the upload is complete.")
    await expect(waiting).to_be_visible()
    await expect(ann.field).to_have_value("as promised")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(waiting).to_have_count(0)
    await ann.field.press("Enter")
    await expect(waiting).to_be_visible()
    is_released.set()
    await expect(uploads).to_have_count(0)
    await expect(ann.field).to_have_value("")

    await ben.open_chat(a)
    message = ben.messages("as promised")
    files = message.get_by_role("button", name="Download")
    await expect(files).to_have_count(2)
    await expect(files.first).to_contain_text("notes.txt")
    saved = await save(ben.page, "Download page.html", "page.html")
    assert saved == b"<script>window.__xss = 1</script>"
    assert await ben.page.evaluate("window.__xss") is None

    await page.evaluate(GIVE_LARGE, 26_300_000)
    await expect(page.get_by_text("Files can be up to 25 MB.")).to_be_visible()
    await expect(uploads).to_have_count(0)
    await attach(ann, payload("fake.png", "image/png", b"this is no image"))
    await expect(page.get_by_text("This isn't a valid image/png file.")).to_be_visible()
    send = page.get_by_role("button", name="Send", exact=True)
    await expect(send).to_be_disabled()
    await page.get_by_role("button", name="Remove fake.png").click()
    await ann.send("without it")
    await expect(ben.messages("without it")).to_have_count(1)
    await ben.check_is_clean()
    ann.console_errors[:] = [text for text in ann.console_errors if "400 (Bad Request)" not in text]
    await ann.check_is_clean()


async def open_details(person: Visitor, tab: str) -> None:
    await person.page.get_by_role("button", name="Chat actions").click()
    await person.page.get_by_role("menuitem", name="Details").click()
    await person.page.get_by_role("tab", name=tab).click()


async def test_voice_message_and_video_are_played_and_in_the_gallery(
    web: WebStack, visit: Visit
) -> None:
    """A recorded voice message and a video are played in the chat and in the details."""
    a, b = web.new_users(2)
    ann, ben = await visit(a), await visit(b)
    await ann.start_chat(b)
    await ann.page.get_by_role("button", name="Record a voice message").click()
    recorder = ann.page.get_by_role("group", name="Recording")
    await expect(recorder.get_by_text("0:01")).to_be_visible()
    await recorder.get_by_role("button", name="Discard recording").click()
    await expect(recorder).to_have_count(0)
    await ann.page.get_by_role("button", name="Record a voice message").click()
    await expect(recorder.get_by_text("0:01")).to_be_visible()
    await recorder.get_by_role("button", name="Send", exact=True).click()
    await ben.open_chat(a)
    player = ben.page.get_by_role("group", name="Audio: Voice message")
    await expect(player.get_by_text(re.compile(r"^0:0[1-9]$"))).to_be_visible()
    await player.get_by_role("button", name="Play").click()
    await wait_until_played(ben, "audio")

    video = await record_video(ann.page)
    await attach(ann, payload("clip.webm", "video/webm", video))
    await ann.send("a film")
    preview = ben.page.get_by_role("log").locator("video")
    await expect(preview).to_have_js_property("videoWidth", 64)
    await ben.page.get_by_role("button", name="Play video clip.webm").click()
    await wait_until_played(ben, "dialog video")
    await ben.page.get_by_role("button", name="Go to message").click()
    await expect(ben.page.get_by_role("dialog")).to_have_count(0)
    await open_details(ben, "Media")
    media = ben.page.get_by_role("list", name="Media")
    await expect(media.get_by_role("listitem")).to_have_count(1)
    await media.get_by_role("button", name="Play video clip.webm").click()
    await wait_until_played(ben, "dialog video")
    viewer = ben.page.get_by_role("dialog", name="Media viewer")
    await viewer.get_by_role("button", name="Go to message").click()
    await expect(viewer).to_have_count(0)
    await expect(ben.page).to_have_url(re.compile(r"/chats/[^/]+\?seq=\d+$"))
    await open_details(ben, "Files")
    files = ben.page.get_by_role("list", name="Files")
    player = files.get_by_role("group", name="Audio: Voice message")
    await player.get_by_role("button", name="Play").click()
    await wait_until_played(ben, "[role=tabpanel] audio")
    async with ben.page.expect_download() as saved:
        await files.get_by_role("button", name=re.compile("Download voice-")).click()
    assert (await saved.value).suggested_filename.startswith("voice-")
    for person in (ann, ben):
        await person.check_is_clean()


async def send_at_once(web: WebStack, sender: str, other: str, content: bytes) -> str:
    """Send a picture without waiting for its thumbnail; return its id."""
    digest = hashlib.sha256(content).hexdigest()
    about = {"name": "late.png", "type": "image/png", "size": len(content), "sha256": digest}
    async with open_caller(web, sender) as caller, httpx.AsyncClient(timeout=60) as s3:
        chat = await caller.open_direct(other)
        form = await caller.call("POST", f"/v1/chats/{chat}/attachments", about)
        file = str(form["id"])
        stored = await s3.post(form["url"], data=form["fields"], files={"file": content})
        assert stored.is_success, stored.text
        done = await caller.call("POST", f"/v1/attachments/{file}/complete", {})
        assert not done["looked_at"]
        body = {"body": "no thumbnail yet", "attachments": [file]}
        await caller.call("POST", f"/v1/chats/{chat}/messages", body)
    return file


async def test_thumbnail_created_after_its_message_is_shown(web: WebStack, visit: Visit) -> None:
    """The page and the SDK get the size and thumbnail of the picture without a reload."""
    a, b = web.new_users(2)
    ben = await visit(b)
    await ben.start_chat(a)
    content = io.BytesIO()
    Image.new("RGB", (640, 320), "navy").save(content, "PNG")
    url = f"ws://127.0.0.1:{web.stack.port}/"
    async with ChatClient(url, web.stack.token(b), api_url=web.url) as client:
        workers = next(iter(web.stack.workers.values()))  # other tests may have started workers
        workers.send_signal(signal.SIGSTOP)
        try:
            file = await send_at_once(web, a, b, content.getvalue())
            image = ben.messages("no thumbnail yet").locator("img")
            await expect(image).to_have_js_property("naturalWidth", 640)
            early = await client.describe(file, seq=1)
        finally:
            workers.send_signal(signal.SIGCONT)

        await expect(image).to_have_js_property("naturalWidth", 480)
        late = await client.describe(file, seq=1)

    assert (early.thumb, late.thumb, late.width, late.height) == (False, True, 640, 320)
    await ben.check_is_clean()
