"""`chatserver chat` in a terminal: input, output, status marks and reconnecting."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deadlines import EXIT_S
from tests.support.devrun import CLI, DEADLINE_S, DevRun, TerminalChat, dev_run
from tests.support.servers.processes import eventually


class Terminal:
    """A terminal of 80 by 24 characters that runs one command."""

    def __init__(self, command: list[str]) -> None:
        self._main, self._other = pty.openpty()
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._output = b""
        self.process = subprocess.Popen(
            command, stdin=self._other, stdout=self._other, stderr=self._other
        )
        asyncio.get_running_loop().add_reader(self._main, self._read)

    def _read(self) -> None:
        try:
            self._output += os.read(self._main, 65_536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._main)

    def type(self, keys: str) -> None:
        """Press keys, and discard the earlier output."""
        self._output = b""
        os.write(self._main, keys.encode())

    async def wait_for_text(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until `text` is drawn; Ctrl-L redraws the whole screen."""

        def is_drawn() -> bool:
            os.write(self._main, b"\x0c")
            return text.encode() in self._output

        await eventually(is_drawn, deadline_s, f"{text!r} on screen")

    def echoes(self) -> bool:
        """Return whether the terminal echoes input, which is its default mode."""
        return bool(termios.tcgetattr(self._other)[3] & termios.ECHO)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._main)
        self.process.kill()
        self.process.wait(EXIT_S)
        os.close(self._other)
        os.close(self._main)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    with dev_run(tmp_path_factory.mktemp("terminal") / "data") as run:
        yield run.start()


async def test_terminal_chat_shows_messages_marks_and_the_connection(dev: DevRun) -> None:
    """Two users chat; the gateway is killed and restarted; no message is lost; Ctrl-C exits."""
    command = [*CLI, "chat", "--as", "alice", "--with", "bob", "--api", dev.page_url]
    alice = Terminal(command)
    try:
        await alice.wait_for_text("alice with bob")
        async with TerminalChat(dev, "bob", "alice") as bob:
            alice.type("Hello Bxb\x7f\x7fob\r")
            await bob.wait_for_line("alice: Hello Bob")
            await alice.wait_for_text("✓")
            bob.send_line("I am \N{RIGHT-TO-LEFT OVERRIDE}here")
            await alice.wait_for_text("I am \N{REPLACEMENT CHARACTER}here")

            alice.type("")
            gateway = dev.child("gateway").pid
            os.kill(dev.pid, signal.SIGSTOP)  # so that `chatserver dev` does not restart a gateway
            try:
                os.kill(gateway, signal.SIGKILL)
                await alice.wait_for_text("offline")
                alice.type("written offline\r")
                await alice.wait_for_text("  …")  # the mark of an unsent message
            finally:
                os.kill(dev.pid, signal.SIGCONT)
            await bob.wait_for_line("alice: written offline")

        assert not alice.echoes()
        alice.type("\x03")
        assert await asyncio.to_thread(alice.process.wait, DEADLINE_S) == 0
        assert alice.echoes()
    finally:
        alice.close()


async def test_piped_chat_runs_commands_and_writes_each_message_once(dev: DevRun) -> None:
    """`/help` and mistyped commands never reach the peer; the status of messages has no text."""
    async with TerminalChat(dev, "bob", "alice") as bob, TerminalChat(dev, "alice", "bob") as alice:
        for line in ("/help", "/nosuch", "//slash", "written once"):
            alice.send_line(line)
        await bob.wait_for_line("alice: written once")
        printed = await alice.wait_for_line("(read)")
        alice.send_line("/quit")
        received = await bob.finish()
        printed += await alice.finish()

    assert [line for line in received if "help" in line or "nosuch" in line] == []
    assert any(line.startswith("[unknown command /nosuch") for line in printed)
    assert any(line.startswith("[/file PATH") for line in printed)
    assert [line for line in printed if "written once" in line] == ["alice: written once"]
    assert [line for line in printed if "slash" in line and line.startswith("alice")] == [
        "alice: /slash"
    ]


async def test_terminal_chat_with_unknown_user_exits_with_1(dev: DevRun) -> None:
    """The command prints that the user does not exist."""
    done = await asyncio.create_subprocess_exec(
        sys.executable,
        *CLI[1:],
        *("chat", "--as", "alice", "--with", "nobody", "--api", dev.page_url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(done.communicate(), DEADLINE_S)

    assert done.returncode == 1
    assert b"nobody: there is no such user" in output


async def test_terminal_chat_with_a_cache_works_offline(dev: DevRun, tmp_path: Path) -> None:
    """Earlier messages are shown without a gateway; a new message is sent later, and once."""
    cached = ("--cache", str(tmp_path / "alice.db"), "--url", dev.gateway_url)
    async with TerminalChat(dev, "bob", "alice") as bob:
        async with TerminalChat(dev, "alice", "bob", *cached) as alice:
            alice.send_line("kept")
            await alice.wait_for_line("alice: kept")
        await bob.wait_for_line("alice: kept")
        gateway = dev.child("gateway").pid
        os.kill(dev.pid, signal.SIGSTOP)  # so that `chatserver dev` does not restart a gateway
        try:
            os.kill(gateway, signal.SIGKILL)
            async with TerminalChat(dev, "alice", "bob", *cached) as alice:
                await alice.wait_for_line("alice: kept")
                alice.send_line("not sent yet")
        finally:
            os.kill(dev.pid, signal.SIGCONT)
        async with TerminalChat(dev, "alice", "bob", *cached) as alice:
            assert (await bob.wait_for_line("alice: not sent yet")).count(
                "alice: not sent yet"
            ) == 1
            alice.send_line("done")
            lines = await bob.wait_for_line("alice: done")
            assert "alice: not sent yet" not in lines
