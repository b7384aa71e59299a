"""`chatserver companion`: create, list, show, update and delete AI companions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import msgspec

from chatserver.cli.process_setup import prepare
from chatserver.command_options import handle_errors, with_options, with_options_of
from chatserver.domain.companion_ids import CompanionId, parse_companion_id
from chatserver.errors import ClientError
from chatserver.features.companions.model import VersionChanges

if TYPE_CHECKING:
    from chatserver.features.companions.service.companions import Companions

LIST_PAGE = 100
_TextFile = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VersionOptions:
    """An option for each field of a companion version."""

    name: Annotated[str | None, "Display name."] = None
    provider: Annotated[
        Literal["bedrock", "openai", "scripted"] | None, "Provider of the model."
    ] = None
    model: Annotated[str | None, "Model name or inference profile."] = None
    prompt: Annotated[str | None, "System prompt."] = None
    prompt_file: Annotated[Path | None, _TextFile, "UTF-8 file with the system prompt."] = None
    context_tokens: Annotated[
        int | None, "Maximum tokens in a request and its response together."
    ] = None
    answer_tokens: Annotated[int | None, "Maximum tokens in a response."] = None
    options: Annotated[str | None, "Options as JSON; replaces all options."] = None
    options_file: Annotated[Path | None, _TextFile, "File with the options as JSON."] = None

    def parse(self) -> VersionChanges:
        """Return the changes. Raises `click.UsageError`."""
        from chatserver.features.companions.companion_options import parse_options

        options = _read_text("options", self.options, self.options_file)
        with handle_errors(usage=(ClientError,)):
            parsed = None if options is None else parse_options(options)
        return VersionChanges(
            name=self.name,
            prompt=_read_text("prompt", self.prompt, self.prompt_file),
            provider=self.provider,
            model=self.model,
            context_tokens_max=self.context_tokens,
            answer_tokens_max=self.answer_tokens,
            options=parsed,
        )


def _read_text(name: str, text: str | None, file: Path | None) -> str | None:
    """Return the value of an option, or the content of the file in `--<name>-file`."""
    if text is not None and file is not None:
        raise click.UsageError(f"--{name}, --{name}-file: use only one of them")
    if file is None:
        return text
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"--{name}-file: cannot be read: {exc}") from None


@contextlib.asynccontextmanager
async def _open_companions() -> AsyncIterator[Companions]:
    from chatserver.domain.clock import SystemClock
    from chatserver.features.companions.service.companions import Companions
    from chatserver.features.companions.warm.companions import CompanionRows
    from chatserver.warm.dynamo.connections import open_dynamodb

    settings = prepare("companion")
    with handle_errors(usage=(ClientError,)):
        async with open_dynamodb(settings.warm) as dynamodb:
            rows = CompanionRows(dynamodb.for_feature("companions"))
            yield Companions(rows, SystemClock())


@click.group()
def companion() -> None:
    """Create, list, update and delete AI companions."""


@companion.command()
@click.argument("id_", metavar="ID")
@with_options_of(VersionOptions)
@with_options
async def create(id_: str, **options: Any) -> None:
    """Create a companion. ID begins with ai- and is the companion's user id in chats."""
    changes = VersionOptions(**options).parse()
    async with _open_companions() as companions:
        created = await companions.create(id_, changes)
    click.echo(f"{created.id}  version {created.version}")


@companion.command(name="list")
@with_options
async def list_companions() -> None:
    """List companions: id, newest version, provider, model, name."""
    after: CompanionId | None = None
    async with _open_companions() as companions:
        while True:
            page, after = await companions.list_page(after, LIST_PAGE)
            for version in page:
                click.echo(
                    f"{version.id}  {version.version}  {version.provider}  {version.model}  "
                    f"{version.name}"
                )
            if after is None:
                return


@companion.command()
@click.argument("id_", metavar="ID")
@with_options
async def get(
    id_: str,
    *,
    version: Annotated[
        int | None, click.IntRange(1), "Version to print. Default: the newest version."
    ] = None,
) -> None:
    """Print a version of a companion as JSON."""
    async with _open_companions() as companions:
        stored = await companions.get(parse_companion_id(id_, "ID"), version)
    click.echo(msgspec.json.format(msgspec.json.encode(stored), indent=2).decode())


@companion.command()
@click.argument("id_", metavar="ID")
@with_options_of(VersionOptions)
@with_options
async def update(id_: str, **options: Any) -> None:
    """Create the next version of a companion; omitted fields keep their values."""
    changes = VersionOptions(**options).parse()
    async with _open_companions() as companions:
        created = await companions.update(parse_companion_id(id_, "ID"), changes)
    click.echo(f"{created.id}  version {created.version}")


@companion.command()
@click.argument("id_", metavar="ID")
@with_options
async def delete(id_: str) -> None:
    """Delete a companion: no new sessions can start; existing messages remain."""
    async with _open_companions() as companions:
        await companions.delete(parse_companion_id(id_, "ID"))
    click.echo(f"deleted {id_}")
