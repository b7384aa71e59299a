"""The built package of the TypeScript SDK in Node and Deno processes, with a running server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually
from tests.support.stack import HOST, Stack, open_stack
from tests.support.typescript import PACKAGE, build, deno_command, node_command

DEADLINE_S = 60.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    build()
    with open_stack(tmp_path, fsync="no") as made:
        yield made


class Device:
    """A Node or Deno process with one client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def call(self, *command: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        answer = await self.read()
        assert "error" not in answer, answer
        return answer["result"]

    async def read(self) -> Any:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), DEADLINE_S)
        assert line, "the program has ended"
        return json.loads(line)

    async def wait(self, chat: str, is_done: Callable[[dict[str, Any]], bool], what: str) -> Any:
        """Wait until the state of a chat meets a condition; return the state."""

        async def read_state() -> Any:
            state = await self.call("state", chat)
            assert is_done(state), state
            return state

        return await eventually(read_state, deadline_s=DEADLINE_S, what=what)

    async def wait_for_bodies(self, chat: str, *bodies: str) -> Any:
        def is_done(state: dict[str, Any]) -> bool:
            return [each["body"] for each in state["messages"]] == list(bodies)

        return await self.wait(chat, is_done, f"messages {bodies}")


@contextlib.asynccontextmanager
async def device(
    stack: Stack,
    user: str,
    name: str,
    store: Path | None = None,
    port: int = 0,
    runtime: Callable[[], list[str]] = node_command,
) -> AsyncIterator[Device]:
    """Run a device in a process until the block ends."""
    url = f"ws://{HOST}:{port or stack.port}/"
    extra = [] if store is None else [str(store)]
    process = await asyncio.create_subprocess_exec(
        *[*runtime(), str(PACKAGE / "tests" / "e2e" / "device.mjs"), url, stack.token(user), name],
        *extra,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**22,
    )
    made = Device(process)
    try:
        await made.read()
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)


async def wait_for_text(file: Path, text: str) -> None:
    await eventually(lambda: file.exists() and text in file.read_text(), what=f"{text} is saved")


async def test_three_devices_with_a_killed_gateway_lose_no_message(stack: Stack) -> None:
    """Messages sent without a gateway are delivered once and in order to every device."""
    await stack.add_users(["alice", "bob"])
    async with (
        device(stack, "alice", "phone") as phone,
        device(stack, "alice", "laptop") as laptop,
        device(stack, "bob", "desk", runtime=deno_command) as desk,
    ):
        chat = await phone.call("open", "bob")
        assert await phone.call("sendAndWait", chat, "one") == 1
        await desk.wait_for_bodies(chat, "one")
        assert await desk.call("react", chat, 1, "👍") == 2
        await desk.call("read", chat, 1)
        port = stack.port

        stack.gateways.pop().kill()
        await phone.wait(chat, lambda state: not state["isOnline"], "the phone is offline")
        await desk.wait(chat, lambda state: not state["isOnline"], "the desk is offline")
        await phone.call("send", chat, "two")
        await phone.call("send", chat, "three")
        await desk.call("send", chat, "four")
        state = await phone.call("state", chat)
        assert [body for body, _ in state["pending"]][-2:] == ["two", "three"]
        stack.start_gateway(port)

        def has_all(state: dict[str, Any]) -> bool:
            return len(state["messages"]) == 4 and not state["pending"]

        states = [
            await each.wait(chat, has_all, "all messages are here, and stored")
            for each in (phone, laptop, desk)
        ]
        logs = [[[each["seq"], each["body"]] for each in state["messages"]] for state in states]
        assert logs[0] == logs[1] == logs[2]
        bodies = [body for _, body in logs[0]]
        assert sorted(bodies) == ["four", "one", "three", "two"]
        assert bodies.index("two") < bodies.index("three")
        assert [state["received"] for state in states] == logs
        assert len(set(states[0]["acked"])) == len(states[0]["acked"]) == 3
        assert states[0]["messages"][0]["reactions"] == {"bob": "👍"}
        assert states[1]["marks"]["bob"][0] >= 1
        assert await laptop.call("history", chat) != []
        await phone.call("close")
        assert await asyncio.wait_for(phone.process.wait(), DEADLINE_S) == 0


@pytest.mark.parametrize("runtime", [node_command, deno_command])
async def test_killed_program_continues_from_its_store(
    runtime: Callable[[], list[str]], stack: Stack, tmp_path: Path
) -> None:
    """Offline sends survive SIGKILL and are sent once. Missed messages and changes arrive."""
    await stack.add_users(["alice", "bob"])
    store = tmp_path / "alice.json"
    async with device(stack, "bob", "desk") as desk:
        async with device(stack, "alice", "phone", store, runtime=runtime) as phone:
            chat = await phone.call("open", "bob")
            await phone.call("sendAndWait", chat, "one")
            await desk.wait_for_bodies(chat, "one")
            await wait_for_text(store, '"entries":[{')  # the position is saved soon after the event
        unreachable = device(stack, "alice", "phone", store, port=1, runtime=runtime)
        async with unreachable as phone:
            await phone.wait_for_bodies(chat, "one")
            await phone.call("send", chat, "two")
            await wait_for_text(store, '"two"')
        await desk.call("sendAndWait", chat, "three")
        await desk.call("react", chat, 1, "🎉")

        async with device(stack, "alice", "phone", store, runtime=runtime) as phone:
            state = await phone.wait_for_bodies(chat, "one", "three", "two")
            assert state["messages"][0]["reactions"] == {"bob": "🎉"}
            assert [body for _, body in state["received"]] == ["three", "two"]
        await desk.wait_for_bodies(chat, "one", "three", "two")
