"""Files in the Python SDK with all servers: S3, thumbnails and authorization."""

from __future__ import annotations

import asyncio
import hashlib
import io
import signal
from typing import Any

import httpx
import pytest
from PIL import Image

from chatserver.client import ChatClient
from chatserver.errors import NotFound
from tests.e2e.web.stack_support import WebStack

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEADLINE_S, POLL_S = 60.0, 0.2


def picture(color: str = "teal") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (640, 320), color).save(out, "PNG")
    return out.getvalue()


async def test_sdk_uploads_and_downloads_files(web: WebStack) -> None:
    """A file from `upload` can be sent; only members can `download` it."""
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
        for text in ("with it", "without it", "with it again"):  # without waiting for acks
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
    """Send a picture over HTTP without waiting for its thumbnail; return its id."""
    headers = {"Authorization": f"Bearer {web.stack.token(sender)}"}
    digest = hashlib.sha256(content).hexdigest()
    about = {"name": "late.png", "type": "image/png", "size": len(content), "sha256": digest}
    async with httpx.AsyncClient(base_url=web.url, headers=headers, timeout=20) as client:

        async def post(path: str, body: dict[str, object]) -> Any:  # decoded JSON
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


async def test_sdk_describes_thumbnail_created_after_its_message(web: WebStack) -> None:
    """`describe` returns the dimensions and the thumbnail as soon as a worker has made it."""
    a, b = web.new_users(2)
    url = f"ws://127.0.0.1:{web.stack.port}/"
    async with ChatClient(url, web.stack.token(b), api_url=web.url) as ben:
        chat = (await ben.open_direct(a)).id
        workers = next(iter(web.stack.workers.values()))  # other tests may have started workers
        workers.send_signal(signal.SIGSTOP)
        try:
            file = await send_at_once(web, a, chat, picture())
            early = await ben.describe(file, seq=1)
        finally:
            workers.send_signal(signal.SIGCONT)

        async with asyncio.timeout(DEADLINE_S):
            while not (late := await ben.describe(file, seq=1)).thumb:
                await asyncio.sleep(POLL_S)

    assert (early.thumb, late.thumb, late.width, late.height) == (False, True, 640, 320)
