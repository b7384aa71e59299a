"""Commands of the terminal client: input lines that begin with a slash and a word."""

from __future__ import annotations

import re

import msgspec

FILE = "/file"
SEARCH = "/search"
HELP = "/help"
QUIT = "/quit"
_ARGUMENTS = {FILE: "PATH", SEARCH: "WORDS"}  # both are required
_USAGE = (
    "/file PATH     send a file",
    "/search WORDS  find messages in all chats",
    "/quit          exit (or press Ctrl-C or Ctrl-D); you stay in the chat",
    "//text         send a message that begins with a slash",
)
_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?", re.DOTALL)


class Command(msgspec.Struct, frozen=True):
    """A command with its argument, which is empty if the command has none."""

    name: str
    argument: str = ""


class HelpText(msgspec.Struct, frozen=True):
    """The list of commands. `heading`: what was wrong with the input, if anything."""

    heading: str
    lines: tuple[str, ...] = _USAGE


def parse_line(line: str) -> str | Command | HelpText:
    """Return the message to send, the command, or the help to show for an invalid command.

    Paths such as ``/etc/hosts`` are messages, because a command is only a slash and a word.
    """
    if line.startswith("//"):
        return line[1:]
    match = _COMMAND.fullmatch(line.strip())
    if match is None:
        return line
    name, argument = match[1], (match[2] or "").strip()
    if name == HELP:
        return HelpText("commands")
    if name in _ARGUMENTS and not argument:
        return HelpText(f"{name} needs an argument: {name} {_ARGUMENTS[name]}")
    if name not in (FILE, SEARCH, QUIT):
        return HelpText(f"unknown command {name}; to send it as a message, write /{name}")
    return Command(name, argument)
