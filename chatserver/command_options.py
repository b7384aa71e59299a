"""Commands: options from annotations, `async` commands, and errors.

``limit: Annotated[int, click.IntRange(1, 50), "Maximum number of results."] = 20`` declares the
option ``--limit``. The annotation contains, after the Python type:

- the help text;
- names, if they differ from the parameter's: ``"--as"``, ``"--redis/--no-redis"``;
- a click type, if the Python type is not enough;
- a dict of other settings of `click.Option`.

An option without a default is required. The Python type sets the kind of option: a Boolean is a
flag, without the prefix ``is_`` or ``has_``; a `Literal` is a choice; a `Path` is a file;
``tuple[str, ...]`` can be repeated. Parameters without such an annotation are not options.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from chatserver.errors import ChatError
from chatserver.process_runtime import run

F = TypeVar("F", bound=Callable[..., Any])

WriteUnitsMax = Annotated[
    int | None,
    click.IntRange(1),
    "--max-write-units",
    "Maximum write capacity units per second; default: unlimited.",
]
PricesFile = Annotated[
    Path | None, "--prices", "TOML file of prices that override the built-in prices (docs/cost.md)."
]


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a command's parameters declare. An `async` command runs until it ends.

    In an `async` command, Ctrl-C does not interrupt a prompt.
    """
    if not inspect.iscoroutinefunction(command):
        return with_options_of(command)(command)

    @functools.wraps(command)
    def run_command(*arguments: Any, **options: Any) -> None:
        run(command(*arguments, **options))

    return with_options_of(command)(run_command)


def with_options_of(source: Callable[..., Any]) -> Callable[[F], F]:
    """Add the options that a dataclass or another function declares."""

    def add(command: F) -> F:
        hints = get_type_hints(source, include_extras=True)
        for parameter in reversed([*inspect.signature(source).parameters.values()]):
            if get_origin(hints.get(parameter.name)) is Annotated:
                names, settings = _read_option(parameter, hints[parameter.name])
                command = click.option(*names, parameter.name, **settings)(command)
        return command

    return add


@contextlib.contextmanager
def handle_errors(
    *failures: type[ChatError],
    usage: tuple[type[ChatError], ...] = (),
    is_resumable: bool = False,
) -> Iterator[None]:
    """Print these errors as messages: exit with code 1, or with 2 for `usage`.

    If the command is resumable, Ctrl-C prints that the command can be repeated.
    """
    try:
        yield
    except failures as exc:
        raise click.ClickException(exc.message) from None
    except usage as exc:
        raise click.UsageError(exc.message) from None
    except KeyboardInterrupt:
        if not is_resumable:
            raise
        raise click.ClickException("stopped; run the command again to continue") from None


def _read_option(parameter: inspect.Parameter, hint: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the names and the settings of a `click.Option`."""
    kind, *details = get_args(hint)
    names, settings = [], _read_type(kind)
    if parameter.default is parameter.empty:
        settings["required"] = True
    else:
        settings["default"] = default = parameter.default
        settings["show_default"] = default is not False and default not in (None, (), "")
    for detail in details:
        if isinstance(detail, dict):
            settings |= detail
        elif not isinstance(detail, str):
            settings["type"] = detail
        elif detail.startswith("--"):
            names.append(detail)
        else:
            settings["help"] = detail
    stem = parameter.name.removeprefix("is_").removeprefix("has_").replace("_", "-")
    return names or [f"--{stem}"], settings


def _read_type(kind: Any) -> dict[str, Any]:
    """Return the settings of an option whose value has this Python type."""
    if types.NoneType in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        return {"multiple": True} if ... in get_args(kind) else {"type": get_args(kind)}
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind))}
    if kind is Path:
        return {"type": click.Path(dir_okay=False, path_type=Path)}
    return {"is_flag": True} if kind is bool else {"type": kind}
