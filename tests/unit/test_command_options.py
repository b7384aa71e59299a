"""Commands declare their options in annotations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import pytest
from click.testing import CliRunner

from chatserver.command_options import handle_errors, with_options, with_options_of
from chatserver.errors import BadRequest, ChatError, NotFound


def run(command: click.Command, *args: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, args)
    return result.exit_code, result.output


@click.command()
@with_options
def report(
    *,
    chats: Annotated[tuple[str, ...], "--chat", "Chats; can be repeated."] = (),
    form: Annotated[Literal["text", "json"], "--format", "Format."] = "text",
    limit: Annotated[int | None, click.IntRange(1, 5), "Limit."] = None,
    out: Annotated[Path | None, "File."] = None,
    is_all: Annotated[bool, "All."] = False,
    has_redis: Annotated[bool, "--redis/--no-redis", "Redis."] = True,
    name: Annotated[str, {"metavar": "NAME"}, "Name."],
) -> None:
    click.echo([chats, form, limit, out, is_all, has_redis, name])


def test_annotations_declare_names_types_and_defaults() -> None:
    """Each kind of annotation becomes the option that it describes."""
    expected = [("a", "b"), "json", 3, Path("f"), True, False, "n"]

    args = ["--chat=a", "--chat=b", "--format=json", "--limit=3", "--out=f", "--all", "--no-redis"]

    assert run(report, *args, "--name=n") == (0, f"{expected}\n")
    assert run(report, "--name=n") == (0, "[(), 'text', None, None, False, True, 'n']\n")


@pytest.mark.parametrize("args", [(), ("--name=n", "--limit=6"), ("--name=n", "--format=xml")])
def test_missing_and_invalid_options_are_refused(args: tuple[str, ...]) -> None:
    """An option without a default is required, and values are checked."""
    assert run(report, *args)[0] == 2


def test_help_prints_types_and_defaults() -> None:
    """`--help` prints defaults, except None, empty values and False."""
    _, text = run(report, "--help")

    words = text.split()
    assert text.count("[default: ") == 2
    assert {"[text|json]", "NAME", "--no-redis", "[required]"} <= set(words)


def test_dataclass_declares_options() -> None:
    """The fields of a dataclass declare options; the command gets their values."""

    @dataclasses.dataclass
    class Options:
        seed: Annotated[int, "Seed."] = 1
        lag: Annotated[tuple[float, float], "Lag."] = (0.5, 2.0)

    @click.command()
    @with_options_of(Options)
    def command(**values: Any) -> None:
        click.echo(Options(**values))

    assert run(command, "--seed=2")[1].endswith("Options(seed=2, lag=(0.5, 2.0))\n")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NotFound("no chat"), 1, "Error: no chat\n"),
        (BadRequest("bad limit"), 2, "Error: bad limit\n"),
        (KeyboardInterrupt(), 1, "Error: stopped; run the command again to continue\n"),
    ],
)
def test_asynchronous_command_reports_errors(error: BaseException, code: int, text: str) -> None:
    """An `async` command runs to its end; errors become messages and exit codes."""

    @click.command()
    @handle_errors(NotFound, usage=(BadRequest,), is_resumable=True)
    @with_options
    async def command(*, is_failing: Annotated[bool, "--fail"] = False) -> None:
        if is_failing:
            raise error
        click.echo("done")

    assert run(command) == (0, "done\n")
    exit_code, output = run(command, "--fail")
    assert (exit_code, output.endswith(text)) == (code, True)


def test_other_errors_are_not_converted() -> None:
    """Only the named errors become messages."""

    @click.command()
    @handle_errors(NotFound)
    @with_options
    def command() -> None:
        raise ChatError("internal")

    assert isinstance(CliRunner().invoke(command).exception, ChatError)
