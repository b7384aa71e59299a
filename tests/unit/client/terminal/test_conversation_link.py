"""The terminal client sends read marks for the open chat."""

from __future__ import annotations

import asyncio
import socket

import pytest

from chatserver.client.terminal import conversation_link as links
from chatserver.client.terminal.conversation_link import Link, State
from chatserver.errors import Unavailable
from tests.unit.client.terminal.test_conversation import Talk


class Server:
    """Stands for the client: refuses the first marks for now."""

    def __init__(self, refusals: int) -> None:
        self.marks: list[int] = []
        self.taken = asyncio.Event()
        self._refusals = refusals

    async def mark(self, chat: str, *, read: int) -> None:
        """Take a mark, or refuse it."""
        self.marks.append(read)
        if len(self.marks) <= self._refusals:
            raise Unavailable("redis is away")
        self.taken.set()


async def get_token() -> str:
    """No token is asked for."""
    raise AssertionError


async def test_link_mark_that_is_refused_for_now_is_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other user sees "read" even if no other event triggers a retry."""
    monkeypatch.setattr(links, "RETRY_S", 0.0)
    talk = Talk()
    talk.arrive(11, 1, sender="bob")
    link, server = (
        Link(url="ws://chat.example/", get_token=get_token, talk=talk.view, on_change=lambda: None),
        Server(2),
    )
    link._client = server  # type: ignore[assignment]  # as much of a client as it needs
    link.state = State.ONLINE

    link.mark_read()

    await server.taken.wait()
    assert server.marks == [1, 1, 1]


async def test_link_without_a_gateway_says_how_to_start_one() -> None:
    """A newcomer's first error: nothing listens at the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
    link = Link(url=url, get_token=give_token, talk=Talk().view, on_change=lambda: None)

    with pytest.raises(Unavailable, match=r"cannot connect to a gateway.*Start one with"):
        await link.run()


async def give_token() -> str:
    return "token"
