"""The terminal client sends read marks for the open chat."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.client.terminal import conversation_link as links
from chatserver.client.terminal.conversation_link import ConversationLink, State
from chatserver.errors import Unavailable
from tests.unit.client.terminal.test_conversation import TerminalChat


class StubClient:
    """A stub client that refuses the first marks temporarily."""

    def __init__(self, refusals: int) -> None:
        self.marks: list[int] = []
        self.accepted = asyncio.Event()
        self._refusals = refusals

    async def mark(self, chat: str, *, read: int) -> None:
        """Accept or refuse a mark."""
        self.marks.append(read)
        if len(self.marks) <= self._refusals:
            raise Unavailable("redis is down")
        self.accepted.set()


async def get_token() -> str:
    return "token"


async def test_temporarily_refused_read_mark_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other user sees "read" even if no other event triggers a retry."""
    monkeypatch.setattr(links, "RETRY_S", 0.0)
    terminal = TerminalChat()
    terminal.receive_message(11, 1, sender="bob")
    link, client = (
        ConversationLink(
            url="ws://chat.example/",
            get_token=get_token,
            conversation=terminal.view,
            on_change=lambda: None,
        ),
        StubClient(2),
    )
    link._client = client  # type: ignore[assignment]  # only `mark` is called
    link.state = State.ONLINE

    link.mark_read()

    await client.accepted.wait()
    assert client.marks == [1, 1, 1]
