"""Documents generated from the code: the settings and the commands with their options.

``python -m chatserver.cli.generated_documents settings`` prints the content of
``docs/settings.md``; ``… commands`` prints that of ``docs/commands.md``.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import annotated_types
import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from chatserver.cli.main import cli
from chatserver.config import PREFIX, RateLimit, Settings

_SETTINGS_HEAD: Final = """# Settings

<!-- Made by `make docs`; do not edit. -->

All settings by section. A process reads them once, at its start: from a TOML file (`--config` or
`CHAT_CONFIG`; a section is a table, such as `[redis]`), from the files of a secrets directory
(`CHAT_SECRETS_DIR`; a file has the name of its variable), and from the variables below. Later
sources override earlier ones. Unknown names and values out of bounds stop the start: all problems
are printed at once, with exit code 2.

The suffix of a name is its unit: `_s` seconds, `_ms` milliseconds, `_bytes_max` bytes. For what
happens at a limit, and the test of it, see [limits.md](limits.md)."""
_COMMANDS_HEAD: Final = """# Commands

<!-- Made by `make docs`; do not edit. -->

All commands of `chatserver` with their options, as printed by `--help`. Exit codes: 0 success, 1 a
dependency is missing or a check failed, 2 a setting or an option is wrong. Commands need the
[settings](settings.md) of the deployment. For those of `chatserver dev`, run
`. .dev/settings.env` in the shell."""
_TYPES: Final[Mapping[Any, str]] = {
    str: "text",
    Path: "path",
    int: "integer",
    float: "number",
    bool: "`true`, `false`",
    SecretStr: "secret",
    RateLimit: "rate",
}
_UNITS: Final = {"_per_s": "a second", "_ms": "ms", "_s": "s", "_kib": "KiB", "_px": "pixels"}


def settings_document() -> str:
    """Return `docs/settings.md`: each setting with its type, default, bounds and meaning."""
    parts = [_SETTINGS_HEAD]
    for section, field in Settings.model_fields.items():
        kind = field.annotation
        assert isinstance(kind, type) and issubclass(kind, BaseModel)
        rows = ["| variable | type | default | bounds | meaning |", "|---|---|---|---|---|"]
        rows += [_row(section, name, one) for name, one in kind.model_fields.items()]
        parts += [f"## {section}", " ".join((kind.__doc__ or "").split()), "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _row(section: str, name: str, field: FieldInfo) -> str:
    variable = f"{PREFIX}{section}_{name}".upper()
    meaning = (field.description or "").replace("|", "\\|")
    cells = (_type_of(field.annotation), _default_of(field, name), _bounds_of(field, name), meaning)
    return f"| `{variable}` | {' | '.join(cells)} |"


def _type_of(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin is list:
        return "list, JSON"
    if origin in (types.UnionType, typing.Union):
        return _type_of(next(one for one in inner if one is not types.NoneType))
    return _TYPES.get(annotation, f"`{annotation}`")


def _default_of(field: FieldInfo, name: str) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is PydanticUndefined or value is None or value in ("", []):
        return "unset"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int | float):
        base = name.removesuffix("_max")
        unit = next((unit for end, unit in _UNITS.items() if base.endswith(end)), "")
        return f"{_number(value, name)} {unit}".strip()
    return f"`{value}`"


def _bounds_of(field: FieldInfo, name: str) -> str:
    least, most, others = "", "", []
    for one in field.metadata:
        match one:
            case annotated_types.Ge():
                least = _number(one.ge, name)
            case annotated_types.Gt():
                least = f"more than {_number(one.gt, name)}"
            case annotated_types.Le():
                most = _number(one.le, name)
            case annotated_types.MaxLen():
                others.append(f"at most {one.max_length} characters")
            case _ if pattern := getattr(one, "pattern", None):
                others.append("`" + str(pattern).replace("|", "\\|") + "`")
    if least and most and not least.startswith("more"):
        others.append(f"{least} to {most}")
    else:
        others += [f"at least {least}".replace("at least more", "more")] if least else []
        others += [f"at most {most}"] if most else []
    return ", ".join(others)


def _number(value: Any, name: str) -> str:
    """Format a number for display: 1,048,576 and 0.5. A port has no separators."""
    if name.endswith("port"):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def commands_document() -> str:
    """Return `docs/commands.md`: the `--help` text of each command."""
    parts = [_COMMANDS_HEAD]
    for context in _contexts(cli, "chatserver", None):
        path = context.command_path
        # Fixed width, independent of the terminal.
        formatter = click.HelpFormatter(width=100)
        context.command.format_help(context, formatter)
        parts.append(f"{'#' * min(path.count(' ') + 2, 4)} {path}")
        parts.append(f"```text\n{formatter.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _contexts(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[click.Context]:
    """Yield a context for the command and for each subcommand."""
    if command.hidden:
        return
    context = click.Context(command, parent, name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _contexts(found, each, context)


DOCUMENTS: Final = {"settings": settings_document, "commands": commands_document}


def main() -> None:
    sys.stdout.write(DOCUMENTS[sys.argv[1]]())


if __name__ == "__main__":
    main()
