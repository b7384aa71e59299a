"""Full-screen mode of the terminal client: messages above a prompt, drawn by `prompt_toolkit`."""

from __future__ import annotations

import asyncio
import contextlib
import time

from prompt_toolkit import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from rich.console import Console, Group, RenderableType
from rich.text import Text

from chatserver.client.terminal.commands import HelpText
from chatserver.client.terminal.conversation import (
    Conversation,
    ConversationLine,
    Mark,
    format_local_time,
)
from chatserver.client.terminal.conversation_link import (
    MakeLink,
    SearchReport,
    State,
    run_until_first_ends,
)
from chatserver.telemetry.printable_text import replace_unprintable

CHARS_MAX = 4_000  # maximum length of a message in characters
TYPING_REPEAT_S = 3.0
DRAW_S = 0.03  # maximum time that a redraw is postponed, so that several changes share it
_MARKS = {
    Mark.SENDING: ("…", "dim"),
    Mark.SENT: ("✓", "dim"),
    Mark.STORED: ("✓✓", "dim"),
    Mark.READ: ("✓✓", "bold cyan"),
    Mark.FAILED: ("✗", "bold red"),
}


class FullScreenChat:
    """Full-screen mode: header, messages, prompt."""

    def __init__(self, conversation: Conversation, make_link: MakeLink) -> None:
        self._console = Console(highlight=False)
        keys = KeyBindings()
        keys.add("c-c")(self._leave)
        keys.add("c-d")(self._leave)
        keys.add("pageup")(lambda _: self._scroll(self._console.height // 2))
        keys.add("pagedown")(lambda _: self._scroll(-self._console.height // 2))
        prompt = BufferControl(
            Buffer(
                multiline=False,
                accept_handler=self._accept,
                on_text_changed=lambda typed: self._send_typing(is_on=bool(typed.text)),
            ),
            [BeforeInput("> ", style="bold")],
        )
        screen = Window(FormattedTextControl(self._render_screen))
        self._app: Application[None] = Application(
            Layout(HSplit([screen, Window(prompt, height=1)]), focused_element=prompt),
            key_bindings=keys,
            full_screen=True,
            max_render_postpone_time=DRAW_S,
        )
        self._conversation = conversation
        self._link = make_link(self._app.invalidate)
        self._scrolled = 0  # number of messages below the lower edge of the screen
        self._typed_at = 0.0

    async def run(self) -> None:
        """Draw the screen and handle keys until Ctrl-C or Ctrl-D."""
        await run_until_first_ends(self._link.run(), self._run_app())

    async def _run_app(self) -> None:
        with contextlib.suppress(EOFError):  # the terminal is closed
            await self._app.run_async()

    def _leave(self, event: KeyPressEvent) -> None:
        if not event.app.is_done:
            event.app.exit()

    def _render_screen(self) -> ANSI:
        if self._scrolled == 0:
            self._link.mark_read()
        with self._console.capture() as captured:
            self._console.print(self.render(self._console.width, self._console.height))
        return ANSI(captured.get())

    def _accept(self, typed: Buffer) -> bool:
        for text in split_messages(typed.text):
            self._scrolled = 0
            if not self._link.handle_line(text) and not self._app.is_done:
                self._app.exit()
        self._send_typing(is_on=False)
        return False  # start a new line

    def _scroll(self, messages: int) -> None:
        count = len(self._conversation.build_lines(time.time()))
        self._scrolled = max(0, min(count - 1, self._scrolled + messages))
        if self._scrolled + self._console.height >= count:
            self._link.load_older()

    def _send_typing(self, *, is_on: bool) -> None:
        now = asyncio.get_running_loop().time()
        if is_on and now - self._typed_at > TYPING_REPEAT_S:
            self._typed_at = now
            self._link.typing(is_on=True)
        elif not is_on and self._typed_at:
            self._typed_at = 0.0
            self._link.typing(is_on=False)

    def render(self, width: int, height: int) -> RenderableType:
        """Render as many of the newest messages as fit above the prompt."""
        lines = self._conversation.build_lines(time.time())
        rendered: list[Text] = []
        report_lines = (
            [] if self._link.report is None else _report_lines(self._link.report)[: height - 4]
        )
        room = height - 3 - len(report_lines)
        for line in reversed(lines[: len(lines) - self._scrolled]):
            wrapped = list(_render_message(line).wrap(self._console, width))
            rendered[:0] = wrapped[-room:]  # a message longer than the screen shows only its end
            room -= len(wrapped)
            if room <= 0:
                break
        filler = [Text("\n" * (room - 1))] if room > 0 else []
        return Group(
            self._render_header(width), *filler, *rendered, *report_lines, self._render_footer()
        )

    def _render_header(self, width: int) -> Text:
        state = {State.CONNECTING: "connecting…", State.OFFLINE: "offline, reconnecting…"}
        right = state.get(self._link.state, "")
        title = f" {self._conversation.user or '…'} with {self._conversation.peer}"
        return Text(f"{title}{right:>{max(1, width - len(title) - 1)}} ", "reverse", no_wrap=True)

    def _render_footer(self) -> Text:
        if self._link.note:
            return Text(
                replace_unprintable(self._link.note), "yellow", no_wrap=True, overflow="ellipsis"
            )
        if self._conversation.is_peer_typing:
            return Text(f"{self._conversation.peer} is typing…", "dim italic")
        return Text(f"{self._scrolled} newer below, Page Down" if self._scrolled else "", "dim")


def _report_lines(report: SearchReport | HelpText) -> list[Text]:
    """Return the heading and one line per result or command, truncated at the screen width."""
    lines = [Text(replace_unprintable(report.heading), "reverse")]
    for line in report.lines:
        if isinstance(line, str):
            lines.append(Text(line))
            continue
        head = (f"{format_local_time(line.ts)}  {replace_unprintable(line.chat)}  ", "dim")
        parts = [
            (replace_unprintable(part.replace("\n", " ")), "bold yellow" if is_hit else "")
            for part, is_hit in line.snippet
        ]
        lines.append(Text.assemble(head, (line.sender, "bold"), "  ", *parts))
    for text in lines:
        text.no_wrap, text.overflow = True, "ellipsis"
    return lines


def split_messages(text: str) -> list[str]:
    """Split typed or pasted text into messages: one per line, without control characters."""
    lines = ("".join(c for c in line if c == "\t" or c.isprintable()) for line in text.splitlines())
    return [line[:CHARS_MAX] for line in lines if line.strip()]


def _render_message(line: ConversationLine) -> Text:
    when = "     " if line.ts is None else format_local_time(line.ts, "%H:%M")
    text = Text.assemble(
        (f"{when} ", "dim"),
        (line.sender, "bold green" if line.mark is None else "bold blue"),
        f"  {replace_unprintable(line.body)}",
    )
    if line.mark is not None:
        sign, style = _MARKS[line.mark]
        text.append(f"  {sign}", style)
    if line.note:
        text.append(f" {replace_unprintable(line.note)}", "red")
    return text
