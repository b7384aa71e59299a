"""`chatserver companion`: create, list, show, update and delete AI companions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from chatserver.cli.process_setup import prepare, run
from chatserver.config import Settings
from chatserver.domain.companion_ids import CompanionId, parse_companion_id
from chatserver.errors import ClientError
from chatserver.features.companions.model import Changes

if TYPE_CHECKING:
    from chatserver.features.companions.service.companions import Companions

LIST_PAGE = 100
_PROVIDERS = click.Choice(["bedrock", "openai", "scripted"])


@click.group()
def companion() -> None:
    """Create, list, update and delete AI companions."""


def _add_version_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of a companion version."""
    for option in reversed(
        (
            click.option("--name", help="Display name."),
            click.option("--provider", type=_PROVIDERS, help="Provider of the model."),
            click.option("--model", help="Model name or inference profile."),
            click.option("--prompt", help="System prompt."),
            click.option(
                "--prompt-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="UTF-8 file with the system prompt.",
            ),
            click.option(
                "--context-tokens",
                type=int,
                help="Maximum tokens in a request and its response together.",
            ),
            click.option("--answer-tokens", type=int, help="Maximum tokens in a response."),
            click.option("--options", help="Options as JSON; replaces all options."),
            click.option(
                "--options-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="File with the options as JSON.",
            ),
        )
    ):
        command = option(command)
    return command


@companion.command()
@click.argument("id_", metavar="ID")
@_add_version_options
def create(id_: str, **changes: Any) -> None:
    """Create a companion. ID begins with ai- and is the companion's user id in chats."""
    wanted = _parse_changes(changes)

    async def action(companions: Companions) -> None:
        created = await companions.create(id_, wanted)
        click.echo(f"{created.id}  version {created.version}")

    _run_with_companions(action)


@companion.command(name="list")
def list_companions() -> None:
    """List companions: id, newest version, provider, model, name."""

    async def action(companions: Companions) -> None:
        after: CompanionId | None = None
        while True:
            page, after = await companions.list_page(after, LIST_PAGE)
            for version in page:
                click.echo(
                    f"{version.id}  {version.version}  {version.provider}  {version.model}  "
                    f"{version.name}"
                )
            if after is None:
                return

    _run_with_companions(action)


@companion.command()
@click.argument("id_", metavar="ID")
@click.option(
    "--version", type=click.IntRange(1), help="Version to print. Default: the newest version."
)
def get(id_: str, version: int | None) -> None:
    """Print a version of a companion as JSON."""

    async def action(companions: Companions) -> None:
        stored = await companions.get(parse_companion_id(id_, "ID"), version)
        click.echo(msgspec.json.format(msgspec.json.encode(stored), indent=2).decode())

    _run_with_companions(action)


@companion.command()
@click.argument("id_", metavar="ID")
@_add_version_options
def update(id_: str, **changes: Any) -> None:
    """Create the next version of a companion; omitted fields keep their values."""
    wanted = _parse_changes(changes)

    async def action(companions: Companions) -> None:
        created = await companions.update(parse_companion_id(id_, "ID"), wanted)
        click.echo(f"{created.id}  version {created.version}")

    _run_with_companions(action)


@companion.command()
@click.argument("id_", metavar="ID")
def delete(id_: str) -> None:
    """Delete a companion: no new sessions can start; existing messages remain."""

    async def action(companions: Companions) -> None:
        await companions.delete(parse_companion_id(id_, "ID"))
        click.echo(f"deleted {id_}")

    _run_with_companions(action)


def _parse_changes(fields: dict[str, Any]) -> Changes:
    from chatserver.features.companions.companion_options import parse_options

    options = _read_text(fields, "options")
    try:
        parsed = None if options is None else parse_options(options)
    except ClientError as exc:
        raise click.UsageError(exc.message) from None
    return Changes(
        name=fields["name"],
        prompt=_read_text(fields, "prompt"),
        provider=fields["provider"],
        model=fields["model"],
        context_tokens_max=fields["context_tokens"],
        answer_tokens_max=fields["answer_tokens"],
        options=parsed,
    )


def _read_text(fields: dict[str, Any], name: str) -> str | None:
    """Return the value of an option, or the content of the file in `--<name>-file`."""
    text: str | None = fields[name]
    file: Path | None = fields[f"{name}_file"]
    if text is not None and file is not None:
        raise click.UsageError(f"--{name}, --{name}-file: use only one of them")
    if file is None:
        return text
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"--{name}-file: cannot be read: {exc}") from None


def _run_with_companions(action: Callable[[Companions], Awaitable[None]]) -> None:
    settings = prepare("companion")
    try:
        run(_with_companions(settings, action))
    except ClientError as exc:
        raise click.UsageError(exc.message) from None


async def _with_companions(
    settings: Settings, action: Callable[[Companions], Awaitable[None]]
) -> None:
    from chatserver.domain.clock import SystemClock
    from chatserver.features.companions.service.companions import Companions
    from chatserver.features.companions.warm.companions import CompanionRows
    from chatserver.warm.dynamo.client import open_dynamodb

    async with open_dynamodb(settings.warm) as dynamodb:
        rows = CompanionRows(dynamodb.for_feature("companions"), settings.warm)
        await action(Companions(rows, SystemClock()))
