"""The examples of clients/typescript, run unchanged, and the HTTP calls of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.reference.support import PASSWORD
from tests.support.deadlines import wait_for_exit
from tests.support.devrun import DEADLINE_S, DevRun, dev_run
from tests.support.servers.processes import eventually
from tests.support.typescript import PACKAGE, build, node

TRANSFER = """
import { Account, ChatClient } from "tierchat";
import WebSocket from "ws";

const [apiUrl, url, password] = process.argv.slice(2);
const tokens = [];
const options = { apiUrl, device: "laptop", onRefreshToken: (token) => void tokens.push(token) };
const account = await Account.register(options, "uploader", password);
const again = await Account.resume(options, tokens.at(-1));
const client = new ChatClient({ url, apiUrl, getToken: again.getToken, WebSocket });
await client.connect();
const chat = await client.createGroup([process.argv[5]], "Files");
const shares = [];
const file = await chat.upload(new Blob(["some text"], { type: "text/plain" }), {
  name: "note.txt",
  onProgress: (share) => void shares.push(share),
});
const sent = await chat.send({ attachments: [file], durability: "stored" });
const content = await (await client.download(file.id, { seq: sent.seq })).text();
await chat.pin(sent.seq);
const pins = (await chat.pins()).map(({ message }) => message.attachments[0].name);
const devices = await client.http.call("list_devices", { limit: 10 });
const push = await client
  .registerPush({ kind: "fcm", token: "a-token" })
  .catch(({ code, message }) => ({ code, message }));
const missing = await client.http.call("get_chat", { chat: "g-none" }).catch(({ code }) => code);
await again.logOut();
await client.close();
const names = devices.items.map(({ name }) => name);
console.log(JSON.stringify({ shares, content, pins, names, push, missing }));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    build()
    with dev_run(tmp_path_factory.mktemp("sdk") / "data") as run:
        run.start(env={"CHAT_AUTH_ARGON2_MEMORY_KIB": "8"})
        yield run
        assert run.end() == 0, run.text()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Node project with the package and `ws` installed."""
    modules = tmp_path / "node_modules"
    shutil.copytree(PACKAGE / "dist", modules / "tierchat" / "dist")
    shutil.copy(PACKAGE / "package.json", modules / "tierchat")
    shutil.copytree(PACKAGE / "node_modules" / "ws", modules / "ws")
    return tmp_path


def register(server: DevRun, user: str) -> Any:
    return server.get("/v1/auth/register", {"user": user, "password": PASSWORD})[1]


@contextlib.asynccontextmanager
async def program(project: Path, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Node program in a project until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *[node(), *args], cwd=project, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)


async def run(project: Path, *args: str) -> str:
    """Run a Node program to its end; return its output."""
    async with program(project, *args) as process:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert process.returncode == 0, output
        return output.decode()


def write_quick_start(project: Path) -> str:
    """Write the first example of the README to the project; return its name."""
    text = (PACKAGE / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    assert len(code.strip().splitlines()) <= 11
    (project / "quick.mjs").write_text(code)
    return "quick.mjs"


async def test_quick_start_of_the_readme_sends_a_message(server: DevRun, project: Path) -> None:
    """The program of the README works unchanged, and creates its account."""
    register(server, "quick-b")
    name = write_quick_start(project)

    addresses = (server.page_url, server.gateway_url)
    output = await run(project, name, *addresses, "quick-a", PASSWORD, "quick-b")

    assert output == "sent as 1\n"


async def test_bot_answers_and_continues_after_a_kill(server: DevRun, project: Path) -> None:
    """The bot has 20 lines, creates its account, and answers missed messages once."""
    source = (PACKAGE / "examples" / "bot.mjs").read_text("utf-8")
    assert len([line for line in source.splitlines() if line and not line.startswith("//")]) <= 20
    (project / "bot.mjs").write_text(source)
    register(server, "human")
    name = write_quick_start(project)
    start = ("bot.mjs", server.page_url, "parrot", PASSWORD)
    send = (name, server.page_url, server.gateway_url, "human", PASSWORD, "parrot")

    async with program(project, *start) as bot:
        assert bot.stdout is not None
        assert await asyncio.wait_for(bot.stdout.readline(), DEADLINE_S) == b"ready\n"
        await run(project, *send)
        await wait_for_texts(server, "Hello", "You said: Hello")
        saved = project / "parrot.json"
        await eventually(lambda: '"shown":2' in saved.read_text(), what="the position is saved")
    await run(project, *send)  # the bot is not running now
    async with program(project, *start):
        answers = ["You said: Hello", "You said: Hello"]
        await wait_for_texts(server, "Hello", answers[0], "Hello", answers[1])


async def wait_for_texts(server: DevRun, *texts: str) -> None:
    """Wait for exactly these messages between the bot and the person."""
    async with httpx.AsyncClient(base_url=server.page_url, timeout=DEADLINE_S) as http:
        login = {"user": "human", "password": PASSWORD}
        token = (await http.post("/v1/auth/login", json=login)).json()["token"]
        http.headers["Authorization"] = f"Bearer {token}"
        chat = (await http.put("/v1/direct-chats/parrot")).json()["chat"]

        async def has_texts() -> bool:
            page = (await http.get(f"/v1/chats/{chat}/messages")).json()
            return [message["body"] for message in page["messages"]] == list(texts)

        await eventually(has_texts, what=f"messages {texts}")


async def test_account_upload_pins_and_push_over_http(server: DevRun, project: Path) -> None:
    """Registration, refresh tokens, upload, send, download, pins and error codes work."""
    register(server, "reader")
    (project / "transfer.mjs").write_text(TRANSFER)

    addresses = (server.page_url, server.gateway_url)
    output = await run(project, "transfer.mjs", *addresses, PASSWORD, "reader")

    found = json.loads(output)
    assert (found["shares"], found["content"]) == ([0, 1], "some text")
    assert (found["pins"], found["names"], found["missing"]) == (
        ["note.txt"],
        ["laptop"],
        "not_found",
    )
    assert isinstance(found["push"], str) or found["push"]["code"] == "bad_request", found["push"]
