"""Commands of the terminal client."""

from __future__ import annotations

import pytest

from chatserver.client.terminal.commands import Command, HelpText, parse_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", "hello"),
        ("/etc/hosts is a file", "/etc/hosts is a file"),
        ("a /help b", "a /help b"),
        ("//help", "/help"),
        ("/file /tmp/a b.png", Command("/file", "/tmp/a b.png")),
        ("/search  lunch ", Command("/search", "lunch")),
        ("/quit", Command("/quit")),
    ],
)
def test_line_is_a_message_or_a_command(line: str, expected: str | Command) -> None:
    """Only a slash and a word are a command; a second slash makes it a message."""
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("/help", "commands"),
        ("/nosuch", "unknown command /nosuch; to send it as a message, write //nosuch"),
        ("/file", "/file needs an argument: /file PATH"),
        ("/search ", "/search needs an argument: /search WORDS"),
    ],
)
def test_invalid_command_shows_the_commands_instead_of_being_sent(line: str, heading: str) -> None:
    """A mistyped command never reaches the other user."""
    help_text = parse_line(line)

    assert isinstance(help_text, HelpText)
    assert help_text.heading == heading
    assert any(each.startswith("/quit") for each in help_text.lines)
