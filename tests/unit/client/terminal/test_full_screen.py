"""Full-screen mode of the terminal client: keys as input, messages as output."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from chatserver.client.terminal.conversation import Conversation
from chatserver.client.terminal.conversation_link import (
    ConversationLink,
    ResultLine,
    SearchReport,
    State,
)
from chatserver.client.terminal.full_screen import CHARS_MAX, FullScreenChat, split_messages


class FakeLink:
    """A link that records the messages to send."""

    state, note = State.ONLINE, ""
    report: SearchReport | None = None

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.typed: list[bool] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def handle_line(self, line: str) -> bool:
        self.sent.append(line)
        return line != "/quit"

    def typing(self, *, is_on: bool) -> None:
        self.typed.append(is_on)

    def mark_read(self) -> None:
        pass


async def type_keys(*pieces: str) -> FakeLink:
    """Type keys, then exit."""
    link = FakeLink()
    with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
        chat = FullScreenChat(Conversation("bob"), lambda _: cast(ConversationLink, link))
        for piece in (*pieces, "\x03"):
            keys.send_text(piece)
        async with asyncio.timeout(60):
            await chat.run()
    return link


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("h\u00e9llo \u20ac\r", ["h\u00e9llo \u20ac"]),
        ("one\rtwo\r", ["one", "two"]),
        ("\r  \r", []),
        ("abc\x7f\r", ["ab"]),
        ("abc\x1b[D\x1b[DX\r", ["aXbc"]),
        ("abc\x01X\x05Y\r", ["XabcY"]),
        ("one two\x17\r", ["one "]),
        ("\x1b[200~one\ntwo\n\x1b[201~\r", ["one", "two"]),  # a paste
    ],
)
async def test_keys_edit_the_line_and_enter_sends_it(keys: str, sent: list[str]) -> None:
    """The usual editing keys work, and an empty message cannot be sent by mistake."""
    assert (await type_keys(keys)).sent == sent


async def test_typing_is_reported_while_the_line_has_text() -> None:
    """Typing is reported once per burst, and its end when the line is empty."""
    assert (await type_keys("ab", "\r")).typed == [True, False]


@pytest.mark.parametrize("height", [6, 24])
def test_search_results_are_between_messages_and_prompt(height: int) -> None:
    """Each result is one line that fits the screen, without control characters."""
    lines = [
        ResultLine(1, "Trip", "ann", [("x " * 60, False), ("lunch\x1b[2J\n", True)])
        for _ in range(10)
    ]
    link = FakeLink()
    link.report = SearchReport("lunch", lines, has_more=True)
    with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
        chat = FullScreenChat(Conversation("bob"), lambda _: cast(ConversationLink, link))
        console = Console(width=60, height=height)
        with console.capture() as captured:
            console.print(chat.render(60, height))
    shown = captured.get().splitlines()

    assert len(shown) <= height - 1
    assert all(len(line) <= 60 for line in shown)
    assert "search lunch: 10 messages, there are more" in captured.get()
    assert "Trip" in captured.get()
    assert "\x1b" not in captured.get()


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b[D\x7f\x00\t\r")))
def test_any_input_becomes_printable_messages(text: str) -> None:
    """No paste adds a control character to a message or sends an empty message."""
    for line in split_messages(text):
        assert line.strip()
        assert line.replace("\t", "").isprintable()
    assert split_messages("x" * (CHARS_MAX + 10)) == ["x" * CHARS_MAX]
