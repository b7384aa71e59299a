"""`chatserver chat`: a direct chat on a terminal screen, or line by line through pipes.

On a terminal, the messages fill the screen above a prompt. Each message that the user sent has a
mark: ``…`` sending, ``✓`` sent, ``✓✓`` stored, bold ``✓✓`` read by the peer. Through pipes, each
line of input is a message. Each message is a line of output, once it is sent. ``(stored)`` and
``(read)`` follow when that is true of all messages that the user has sent so far.
`commands` lists the commands, such as ``/file`` and ``/help``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from chatserver.client.cache.sqlite_store import SqliteStore
from chatserver.client.client import GetToken
from chatserver.client.terminal.commands import HelpText
from chatserver.client.terminal.conversation import (
    Conversation,
    ConversationLine,
    Mark,
    format_local_time,
)
from chatserver.client.terminal.conversation_link import (
    ConversationLink,
    MakeLink,
    SearchReport,
    run_until_first_ends,
)
from chatserver.errors import TooLarge
from chatserver.extras import explain_missing
from chatserver.telemetry.printable_text import replace_unprintable

LINE_BYTES_MAX = 65_536
DRAIN_S = 3.0  # maximum wait for acks at the end of piped input


async def run_chat(
    url: str,
    get_token: GetToken,
    peer: str,
    api_url: str | None = None,
    cache: str | None = None,
) -> None:
    """Chat with `peer` until the user leaves.

    `api_url`: address of the HTTP API, for files. `cache`: SQLite file that caches the messages.

    Raises:
        ChatError: a permanent failure; the message states the cause.
    """
    conversation = Conversation(peer)
    store = None if cache is None else SqliteStore(cache)

    def make_link(on_change: Callable[[], None]) -> ConversationLink:
        return ConversationLink(
            url=url,
            get_token=get_token,
            conversation=conversation,
            on_change=on_change,
            api_url=api_url,
            store=store,
        )

    if sys.stdin.isatty() and sys.stdout.isatty():
        with explain_missing("the terminal client"):
            from chatserver.client.terminal.full_screen import FullScreenChat
        await FullScreenChat(conversation, make_link).run()
    else:
        await PipeChat(conversation, make_link, sys.stdout).run(sys.stdin)


class PipeChat:
    """Pipe mode: a line per message, ``sender: text``, and one per delivery status, ``(read)``."""

    def __init__(self, conversation: Conversation, make_link: MakeLink, out: TextIO) -> None:
        self._conversation = conversation
        self._out = out
        self._link = make_link(self._show)
        self._report: SearchReport | HelpText | None = None  # the last report written
        self._shown = 0
        self._status: tuple[int, Mark] | None = None  # of the newest own message, as written
        self._failures = 0
        self._changed = asyncio.Event()

    async def run(self, source: TextIO) -> None:
        """Send each line of `source`, then wait up to `DRAIN_S` until all are sent."""
        await run_until_first_ends(self._link.run(), self._send_lines(source))

    async def _send_lines(self, source: TextIO) -> None:
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        # Read in a thread: the event loop can wait for a pipe, but not for a file or /dev/null.
        feeding = (source.fileno(), reader, asyncio.get_running_loop())
        threading.Thread(target=_feed_reader, args=feeding, daemon=True).start()
        while line := await _read_line(reader):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text.strip() and not self._link.handle_line(text):
                break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while not self._is_all_sent():
                    self._changed.clear()
                    await self._changed.wait()

    def _is_all_sent(self) -> bool:
        is_busy = self._link.uploads or self._link.searches
        return (
            self._conversation.chat is not None and self._conversation.is_all_acked and not is_busy
        )

    def _show(self) -> None:
        self._changed.set()
        lines = self._conversation.build_lines(time.time())
        # Timestamps increase within a chat, so a message with `ts` above `_shown` is new.
        for line in lines:
            if line.ts is not None and line.ts > self._shown:
                self._shown = line.ts
                self._out.write(f"{line.sender}: {_to_one_line(line.body)}\n")
        self._write_status(lines)
        failed = [line for line in lines if line.mark is Mark.FAILED]
        for line in failed[self._failures :]:
            self._out.write(f"(failed: {_to_one_line(line.note)}) {_to_one_line(line.body)}\n")
        self._failures = len(failed)
        if self._link.report is not self._report:
            self._report = self._link.report
            self._write_report()
        self._out.flush()
        self._link.mark_read()

    def _write_status(self, lines: list[ConversationLine]) -> None:
        """Report that all messages sent so far are stored or read."""
        own = [line for line in lines if line.mark is not None and line.ts is not None]
        if not own:
            return
        newest = own[-1]
        status = (newest.ts or 0, newest.mark or Mark.SENT)
        if status[1] in (Mark.STORED, Mark.READ) and status != self._status:
            self._status = status
            self._out.write(f"({status[1].value})\n")

    def _write_report(self) -> None:
        if self._report is None:
            return
        self._out.write(f"[{replace_unprintable(self._report.heading)}]\n")
        for line in self._report.lines:
            if isinstance(line, str):
                self._out.write(f"[{line}]\n")
                continue
            text = "".join(part for part, _ in line.snippet).replace("\n", " ⏎ ")
            line_text = replace_unprintable(f"{line.chat} {line.sender}: {text}")
            self._out.write(f"[{format_local_time(line.ts)}] {line_text}\n")


def _to_one_line(text: str) -> str:
    return replace_unprintable(text).replace("\n", " ⏎ ")


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise TooLarge(f"an input line is longer than {LINE_BYTES_MAX} bytes") from None


def _feed_reader(
    descriptor: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop
) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop has been closed
        while data := os.read(descriptor, 4096):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)
