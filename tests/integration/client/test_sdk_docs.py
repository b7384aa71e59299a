"""The examples of docs/sdk.md, run unchanged."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from chatserver.dev.servers import Server
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack

TEXT = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text("utf-8")
FIRST, RESUMING, CACHING = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
DEADLINE_S = 60.0


async def start(program: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def output_of(process: asyncio.subprocess.Process) -> str:
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_first_example_sends_and_receives(
    stack: Stack, api: Server, alice: RawChat, new_name: NewName
) -> None:
    """The example registers, sends a message, prints the reply and marks it as read."""
    user, url = new_name("sdk"), f"ws://127.0.0.1:{stack.port}/"

    process = await start(FIRST, url, api.endpoint, user, "correct horse 7", alice.user)
    hello = await alice.expect_frame("event", DEADLINE_S, kind="message")
    assert hello["message"]["body"] == "Hello"
    await alice.send(hello["chat"], "Hello you")

    assert await output_of(process) == f"sent as 1\n{alice.user}: Hello you\n"
    await alice.expect_frame("event", kind="read", read={"user": user, "read": 2, "received": 2})


async def test_second_example_resumes_after_a_restart(
    stack: Stack, alice: RawChat, new_name: NewName, tmp_path: Path
) -> None:
    """The second process prints only the messages that arrived between the two."""
    user, url = new_name("sdk"), f"ws://127.0.0.1:{stack.port}/"
    arguments = (url, stack.token(user), str(tmp_path / "client.db"))
    async with stack.chat_of(user, device="first"):
        chat = await alice.open_direct(user)

    process = await start(RESUMING, *arguments, "1")
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S) == b"ready\n"
    await alice.send(chat, "one")
    assert await output_of(process) == "one\n"
    await alice.send(chat, "two")
    await alice.send(chat, "three")

    assert await output_of(await start(RESUMING, *arguments, "2")) == "ready\ntwo\nthree\n"


async def test_third_example_reads_the_cache(
    stack: Stack, alice: RawChat, new_name: NewName, tmp_path: Path
) -> None:
    """Without a gateway, it prints the messages that the second example received."""
    user, path = new_name("sdk"), str(tmp_path / "client.db")
    url = f"ws://127.0.0.1:{stack.port}/"
    async with stack.chat_of(user, device="first"):
        chat = await alice.open_direct(user)
    process = await start(RESUMING, url, stack.token(user), path, "1")
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S) == b"ready\n"
    await alice.send(chat, "one")
    assert await output_of(process) == "one\n"

    program = CACHING.replace(
        "SqliteStore(path,", f'SqliteStore(path, server="{get_address(url)}",'
    )
    offline = await start(program, "ws://127.0.0.1:9/", stack.token(user), path)

    assert await output_of(offline) == f"{chat} cache ['one']\n"


def get_address(url: str) -> str:
    return url.removeprefix("ws://").rstrip("/")
