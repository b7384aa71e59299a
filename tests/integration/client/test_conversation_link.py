"""The terminal client without a gateway."""

from __future__ import annotations

import socket

import pytest

from chatserver.client.terminal.conversation_link import ConversationLink
from chatserver.errors import Unavailable
from tests.unit.client.terminal.test_conversation import TerminalChat
from tests.unit.client.terminal.test_conversation_link import get_token


async def test_link_without_gateway_fails_with_the_start_command() -> None:
    """No server listens at the address; the error names the command that starts one."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
    link = ConversationLink(
        url=url, get_token=get_token, conversation=TerminalChat().view, on_change=lambda: None
    )

    with pytest.raises(Unavailable, match=r"cannot connect to a gateway.*Start one with"):
        await link.run()
