"""Commands in documents, compared with the commands of the product.

A command line in a document may contain alternatives (``a|b``), an ellipsis (``…``) and
placeholders (``<mid>``), which a shell would not accept.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from chatserver.cli.main import cli
from tests.unit.docs.markdown import Document

_START = re.compile(r"(?:^|\s)(?:\.venv/bin/)?chatserver(?=\s)")
# The end of a command: a comment, another command, a redirection, prose.
_END = re.compile(r"\s#|\s?[|>;&](?:\s|$)|&&|\)$|\s→")
_ELLIPSES = ("…", "...")


def commands_of(document: Document) -> Iterator[str]:
    """Yield the arguments of `chatserver` in each command of a document."""
    for line in document.shell_lines():
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
    """Return the error in the arguments of `chatserver`, or None."""
    args = shlex.split(text)
    context = click.Context(cli, info_name="chatserver", **cli.context_settings)
    return _check(cli, context, args)


def _check(command: click.Command, context: click.Context, args: list[str]) -> str | None:
    """Check the options of this command, then its arguments or a subcommand."""
    options = {name: each for each in command.get_params(context) for name in each.opts}
    options |= {name: each for each in command.get_params(context) for name in each.secondary_opts}
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    given = 0
    while args:
        arg, *args = args
        arg = arg.strip("[]")
        if arg in _ELLIPSES or not arg:
            return None
        if arg.startswith("-") and arg != "-":
            name, _, value = arg.partition("=")
            option = options.get(name)
            if option is None:
                return f"{context.command_path} has no option {name}"
            is_flag = getattr(option, "is_flag", False) or getattr(option, "count", False)
            if not is_flag and not value:
                if not args:
                    return f"{context.command_path} {name} requires a value"
                value, *args = args
            if not is_flag and (error := _check_value(option, value)):
                return error
        elif isinstance(command, click.Group):
            return _check_alternatives(command, context, arg, args)
        elif not arguments:
            return f"{context.command_path} takes no argument {arg}"
        else:
            argument = arguments[min(given, len(arguments) - 1)]
            if given >= len(arguments) and argument.nargs != -1:
                return f"{context.command_path} takes no argument {arg}"
            for each in arg.split("|"):
                if error := _check_value(argument, each):
                    return error
            given += 1
    return None


def _check_alternatives(
    group: click.Group, context: click.Context, arg: str, args: list[str]
) -> str | None:
    for name in arg.split("|"):
        found = group.get_command(context, name)
        if found is None:
            return f"no command {context.command_path} {name}"
        inner = click.Context(found, info_name=name, parent=context)
        if error := _check(found, inner, args):
            return error
    return None


def _check_value(parameter: click.Parameter, value: str) -> str | None:
    """Check a choice; other values may be placeholders, and their validity depends on settings."""
    kind = parameter.type
    if isinstance(kind, click.Choice) and "<" not in value and value not in kind.choices:
        return f"{parameter.name} cannot be {value}"
    return None
