"""`chatserver chat`: a direct chat on a terminal screen, or line by line through pipes.

On a terminal the messages fill the screen above a prompt. Each own message has a mark: ``…``
sending, ``✓`` sent, ``✓✓`` stored, bold once the peer has read it. Through pipes each line of input
is a message, and each message and each mark is a line of output.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import datetime
import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from chatserver.client.client import GetToken
from chatserver.client.terminal.conversation import Conversation, Line, Mark
from chatserver.client.terminal.conversation_link import Link, State
from chatserver.client.terminal.line_editor import Key, LineEditor
from chatserver.errors import TooLarge
from chatserver.telemetry.printable_text import printable

TYPING_REPEAT_S = 3.0
DRAW_S = 0.03
LINE_BYTES_MAX = 65_536
LEAVE_S = 3.0  # maximum wait for unanswered sends at the end of piped input
_MARKS = {
    Mark.SENDING: ("…", "dim"),
    Mark.SENT: ("✓", "dim"),
    Mark.STORED: ("✓✓", "dim"),
    Mark.READ: ("✓✓", "bold cyan"),
    Mark.FAILED: ("✗", "bold red"),
}


async def chat(url: str, get_token: GetToken, peer: str, api_url: str | None = None) -> None:
    """Chat with `peer` until the user leaves. `api_url`: address of the HTTP API, for files.

    Raises:
        ChatError: a permanent failure; the message states the cause.
    """
    talk = Conversation(peer)
    if sys.stdin.isatty() and sys.stdout.isatty():
        await ScreenChat(url=url, get_token=get_token, talk=talk, api_url=api_url).run()
    else:
        await PipeChat(
            url=url, get_token=get_token, talk=talk, out=sys.stdout, api_url=api_url
        ).run(sys.stdin)


class PipeChat:
    """Pipe mode: ``sender: text`` for a new message, ``(mark) text`` for a new delivery status."""

    def __init__(
        self,
        *,
        url: str,
        get_token: GetToken,
        talk: Conversation,
        out: TextIO,
        api_url: str | None = None,
    ) -> None:
        self._talk = talk
        self._out = out
        self._link = Link(
            url=url, get_token=get_token, talk=talk, on_change=self._show, api_url=api_url
        )
        self._shown = 0
        self._marks: dict[int, Mark | None] = {}
        self._changed = asyncio.Event()

    async def run(self, source: TextIO) -> None:
        """Send each line of `source`; exit at its end, when all is sent or three seconds later."""
        online = asyncio.create_task(self._link.run(), name="link")
        reading = asyncio.create_task(self._send_lines(source), name="input")
        try:
            await asyncio.wait([online, reading], return_when=asyncio.FIRST_COMPLETED)
            if online.done():
                online.result()
            reading.result()
        finally:
            for task in (online, reading):
                task.cancel()
            await asyncio.gather(online, reading, return_exceptions=True)

    async def _send_lines(self, source: TextIO) -> None:
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        # A thread: the event loop can wait for a pipe, but not for a file or /dev/null.
        feeding = (source.fileno(), reader, asyncio.get_running_loop())
        threading.Thread(target=_feed, args=feeding, daemon=True).start()
        while line := await _read_line(reader):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text.strip():
                self._link.send(text)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while not self._is_all_sent():
                    self._changed.clear()
                    await self._changed.wait()

    def _is_all_sent(self) -> bool:
        return self._talk.chat is not None and self._talk.is_answered and not self._link.uploads

    def _show(self) -> None:
        self._changed.set()
        for line in self._talk.lines(time.time()):
            body = printable(line.body).replace("\n", " ⏎ ")
            # Timestamps increase within a chat: they identify shown messages, even after a restart.
            if line.ts is not None and line.ts > self._shown:
                self._shown = line.ts
                self._out.write(f"{line.sender}: {body}\n")
            key = line.ts or 0
            if line.mark not in (None, Mark.SENDING, self._marks.get(key)):
                self._marks[key] = line.mark
                self._out.write(f"({line.mark.value}) {body}\n")
        self._out.flush()
        self._link.mark_read()


class ScreenChat:
    """Screen mode: header, messages, prompt."""

    def __init__(
        self, *, url: str, get_token: GetToken, talk: Conversation, api_url: str | None = None
    ) -> None:
        self._talk = talk
        self._link = Link(
            url=url, get_token=get_token, talk=talk, on_change=self._changed, api_url=api_url
        )
        self._editor = LineEditor()
        self._console = Console(highlight=False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._dirty = asyncio.Event()
        self._quit = asyncio.Event()
        self._scrolled = 0  # messages below the lower edge of the screen
        self._typed_at = 0.0

    async def run(self) -> None:
        """Render the screen and handle keys until Ctrl-C or Ctrl-D."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._changed)
        online = asyncio.create_task(self._link.run(), name="link")
        leaving = asyncio.create_task(self._quit.wait(), name="quit")
        with (
            _raw_keys(sys.stdin.fileno()),
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            drawing = asyncio.create_task(self._draw(live), name="screen")
            loop.add_reader(sys.stdin.fileno(), self._read_keys)
            try:
                await asyncio.wait([online, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                loop.remove_reader(sys.stdin.fileno())
                loop.remove_signal_handler(signal.SIGWINCH)
                for task in (drawing, online, leaving):
                    task.cancel()
                results = await asyncio.gather(online, drawing, leaving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _changed(self) -> None:
        self._dirty.set()

    async def _draw(self, live: Live) -> None:
        while True:
            self._dirty.clear()
            live.update(self.render(self._console.width, self._console.height), refresh=True)
            if self._scrolled == 0:
                self._link.mark_read()
            await self._dirty.wait()
            await asyncio.sleep(DRAW_S)  # coalesce a burst into one redraw

    def _read_keys(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 4096)
        except OSError:
            data = b""
        if not data:
            self._quit.set()
            return
        for happened in self._editor.feed(self._decoder.decode(data)):
            match happened:
                case Key.QUIT:
                    self._quit.set()
                case Key.PAGE_UP:
                    self._scroll(self._console.height // 2)
                case Key.PAGE_DOWN:
                    self._scroll(-self._console.height // 2)
                case str(text):
                    self._scrolled = 0
                    self._link.send(text)
        self._send_typing()
        self._changed()

    def _scroll(self, messages: int) -> None:
        count = len(self._talk.lines(time.time()))
        self._scrolled = max(0, min(count - 1, self._scrolled + messages))
        if self._scrolled + self._console.height >= count:
            self._link.load_older()

    def _send_typing(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._editor.text and now - self._typed_at > TYPING_REPEAT_S:
            self._typed_at = now
            self._link.typing(is_on=True)
        elif not self._editor.text and self._typed_at:
            self._typed_at = 0.0
            self._link.typing(is_on=False)

    def render(self, width: int, height: int) -> RenderableType:
        """Render as many of the newest messages as fit above the prompt."""
        lines = self._talk.lines(time.time())
        shown: list[Text] = []
        room = height - 3
        for line in reversed(lines[: len(lines) - self._scrolled]):
            wrapped = list(_message(line).wrap(self._console, width))
            shown[:0] = wrapped[-room:]  # of a message longer than the screen, its end
            room -= len(wrapped)
            if room <= 0:
                break
        filler = [Text("\n" * (room - 1))] if room > 0 else []
        return Group(self._header(width), *filler, *shown, self._footer(), self._prompt(width))

    def _header(self, width: int) -> Text:
        state = {State.CONNECTING: "connecting…", State.OFFLINE: "offline, trying again…"}
        right = state.get(self._link.state, "")
        left = f" {self._talk.user or '…'} with {self._talk.peer}"
        return Text(f"{left}{right:>{max(1, width - len(left) - 1)}} ", "reverse", no_wrap=True)

    def _footer(self) -> Text:
        if self._link.note:
            return Text(printable(self._link.note), "yellow", no_wrap=True, overflow="ellipsis")
        if self._talk.is_peer_typing:
            return Text(f"{self._talk.peer} is typing…", "dim italic")
        return Text(f"{self._scrolled} newer below, Page Down" if self._scrolled else "", "dim")

    def _prompt(self, width: int) -> Text:
        text, cursor = self._editor.text, self._editor.cursor
        start = max(0, cursor - max(1, width - 6))  # keep the cursor visible
        return Text.assemble(
            ("> ", "bold"),
            text[start:cursor].replace("\t", " "),
            (text[cursor : cursor + 1] or " ", "reverse"),
            text[cursor + 1 : start + width - 4],
            no_wrap=True,
        )


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise TooLarge(f"a line of the input is longer than {LINE_BYTES_MAX} bytes") from None


def _feed(descriptor: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, there is no reader
        while data := os.read(descriptor, 4096):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)


def _message(line: Line) -> Text:
    when = "     "
    if line.ts is not None:
        local = datetime.datetime.fromtimestamp(line.ts / 1e6, tz=datetime.UTC).astimezone()
        when = local.strftime("%H:%M")
    text = Text.assemble(
        (f"{when} ", "dim"),
        (line.sender, "bold green" if line.mark is None else "bold blue"),
        f"  {printable(line.body)}",
    )
    if line.mark is not None:
        sign, style = _MARKS[line.mark]
        text.append(f"  {sign}", style)
    if line.note:
        text.append(f" {printable(line.note)}", "red")
    return text


@contextlib.contextmanager
def _raw_keys(descriptor: int) -> Iterator[None]:
    """Switch the terminal to raw mode, so that Ctrl-C is a key too, and restore it afterwards."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSANOW)
    after = termios.tcgetattr(descriptor)
    after[1] |= termios.OPOST  # normal output processing: a newline starts a line
    termios.tcsetattr(descriptor, termios.TCSANOW, after)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
