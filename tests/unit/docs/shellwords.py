"""Commands as documents write them, compared with the commands that there are.

A command line in a document may hold what no shell would take: alternatives (``a|b``), something
left out (``…``), something to be filled in (``<mid>``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from chatserver.cli.main import cli
from tests.unit.docs.markdown import Document

_START = re.compile(r"(?:^|\s)(?:\.venv/bin/)?chatserver(?=\s)")
# What ends a command: a comment, another command, a redirection, prose.
_END = re.compile(r"\s#|\s?[|>;&](?:\s|$)|&&|\)$|\s→")
_OPEN = ("…", "...")


def commands_of(document: Document) -> Iterator[str]:
    """Yield what follows `chatserver` in each command of a document."""
    for line in document.lines_of_shell():
        for start in _START.finditer(line.partition(" # ")[0]):
            rest = line[start.end() :]
            if (
                not line[: start.start()]
                .rstrip()
                .endswith((":", "import", "pip install", "secret generic", " -t"))
            ):
                yield _END.split(rest)[0].strip()
    for code in document.inline:
        if found := re.match(r"(?:\.venv/bin/)?chatserver (?=\S)", code):
            yield _END.split(code[found.end() :])[0].strip()


def check_command(text: str) -> str | None:
    """Say what is wrong with what follows `chatserver`, or return None."""
    words = shlex.split(text)
    context = click.Context(cli, info_name="chatserver", **cli.context_settings)
    return _check(cli, context, words)


def _check(command: click.Command, context: click.Context, words: list[str]) -> str | None:
    """Walk down: options of this command, then its arguments or a subcommand."""
    options = {name: one for one in command.get_params(context) for name in one.opts}
    options |= {name: one for one in command.get_params(context) for name in one.secondary_opts}
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    given = 0
    while words:
        word, *words = words
        word = word.strip("[]")
        if word in _OPEN or not word:
            return None
        if word.startswith("-") and word != "-":
            name, _, value = word.partition("=")
            option = options.get(name)
            if option is None:
                return f"{context.command_path} has no option {name}"
            is_flag = getattr(option, "is_flag", False) or getattr(option, "count", False)
            if not is_flag and not value:
                if not words:
                    return f"{context.command_path} {name} wants a value"
                value, *words = words
            if not is_flag and (why := _check_value(option, value)):
                return why
        elif isinstance(command, click.Group):
            return _check_alternatives(command, context, word, words)
        elif not arguments:
            return f"{context.command_path} takes no argument {word}"
        else:
            argument = arguments[min(given, len(arguments) - 1)]
            if given >= len(arguments) and argument.nargs != -1:
                return f"{context.command_path} takes no argument {word}"
            for one in word.split("|"):
                if why := _check_value(argument, one):
                    return why
            given += 1
    return None


def _check_alternatives(
    group: click.Group, context: click.Context, word: str, words: list[str]
) -> str | None:
    for name in word.split("|"):
        found = group.get_command(context, name)
        if found is None:
            return f"there is no command {context.command_path} {name}"
        inner = click.Context(found, info_name=name, parent=context)
        if why := _check(found, inner, words):
            return why
    return None


def _check_value(parameter: click.Parameter, value: str) -> str | None:
    """A choice is checked; anything else may be a placeholder, and needs settings to judge."""
    kind = parameter.type
    if isinstance(kind, click.Choice) and "<" not in value and value not in kind.choices:
        return f"{parameter.name} cannot be {value}"
    return None
