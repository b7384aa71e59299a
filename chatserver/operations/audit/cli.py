"""`chatserver audit`: compare Redis, DynamoDB and S3; report inconsistencies with advice.

Exit codes: 0 no findings, 1 findings that are not repaired or a failed check, 2 invalid option.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import click
import msgspec

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.ids import ChatId, parse_id
from chatserver.domain.quantities import format_count
from chatserver.errors import BadRequest
from chatserver.feature_modules import iter_feature_modules

if TYPE_CHECKING:
    from chatserver.operations.audit.chat_audit import Tally
    from chatserver.operations.audit.model import RuleFinding


@click.group(invoke_without_command=True)
@with_options
@click.pass_context
def audit(
    context: click.Context,
    *,
    chats: Annotated[tuple[str, ...], "--chat", "Audit this chat; can be repeated."] = (),
    is_all: Annotated[bool, "Audit all chats once."] = False,
    continuous: Annotated[
        bool, "Audit all chats repeatedly until SIGTERM; findings go to metrics and the log."
    ] = False,
    max_read_units: Annotated[
        int | None,
        click.IntRange(1),
        "Maximum DynamoDB read capacity units per second; default: unlimited, or "
        "CHAT_AUDIT_READ_UNITS_PER_S with --continuous.",
    ] = None,
    is_json: Annotated[bool, "Print one JSON object per finding."] = False,
) -> None:
    """Compare the copies of chats in Redis, DynamoDB and S3. Read-only; safe at any time."""
    if context.invoked_subcommand is not None:
        return
    if sum((bool(chats), is_all, continuous)) != 1:
        raise click.UsageError("exactly one of --chat, --all and --continuous is required")
    settings = prepare("audit")
    try:
        names = [ChatId(parse_id(chat, "--chat")) for chat in chats]
    except BadRequest as exc:
        raise click.UsageError(exc.message) from None
    require_redis(settings.redis)
    if continuous:
        from workers.runner import run_workers

        if max_read_units is not None:
            rate = {"read_units_per_s": max_read_units}
            settings = settings.model_copy(update={"audit": settings.audit.model_copy(update=rate)})
        run(run_workers(settings, ["audit"]))
        return
    tally = run(_audit(settings, names, max_read_units, is_json=is_json))
    if tally.findings or tally.failed:
        sys.exit(1)


async def _audit(
    settings: Settings, chats: list[ChatId], max_read_units: int | None, *, is_json: bool
) -> Tally:
    from chatserver.cli.progress import open_report
    from chatserver.domain.clock import SystemClock
    from chatserver.hot.redis.factory import open_hot
    from chatserver.operations.audit.chat_audit import Tally
    from chatserver.operations.audit.worker import open_audit

    clock, tally, printed = SystemClock(), Tally(), 0
    with open_report(clock, is_stderr=True) as report:
        report.begin("audit", len(chats))

        async def on_progress() -> None:
            nonlocal printed
            for finding in tally.findings[printed:]:
                _print(finding, is_json=is_json)
            printed = len(tally.findings)
            text = f"{_format_counts(tally)}, {format_count(printed, 'finding')}"
            report.show(tally.chats, text)

        async with (
            open_hot(settings.redis) as hot,
            open_audit(settings, hot, clock, max_read_units) as work,
        ):
            for chat in chats:
                before = tally.entries
                await work.audit_chat(chat, tally, on_progress)
                await work.audit_objects(chat, tally)
                await on_progress()
                if tally.entries == before and chat not in tally.failed:
                    click.echo(f"{chat}: no tier has data for this chat", err=True)
            if not chats:

                async def audit_chat(chat: ChatId) -> None:
                    await work.audit_chat(chat, tally, on_progress)
                    await on_progress()

                await work.audit_chats(audit_chat)
                await work.audit_all_objects(tally, on_progress)
            await on_progress()
            units = work.client.units
        report.end()
    _print_end(tally, units, is_json=is_json)
    return tally


def _print(finding: RuleFinding, *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(as_json(finding)))
        return
    for line in build_finding_lines(finding):
        click.echo(line)


def as_json(finding: RuleFinding) -> dict[str, str | int]:
    return {
        "category": finding.category,
        **msgspec.structs.asdict(finding),
        "meaning": finding.meaning,
        "advice": finding.advice,
    }


def build_finding_lines(finding: RuleFinding) -> list[str]:
    seqs = f"{finding.first}" if finding.count == 1 else f"{finding.first} to {finding.last}"
    location = f", {finding.where}" if finding.where else ""
    return [
        f"{finding.category}: {finding.kind}: chat {finding.chat}, seq {seqs}{location}: "
        f"{finding.meaning}",
        f"    {finding.advice}",
    ]


def _format_counts(tally: Tally) -> str:
    return f"{format_count(tally.chats, 'chat')}, {format_count(tally.entries, 'entry', 'entries')}"


def _print_end(tally: Tally, units: float, *, is_json: bool) -> None:
    for chat, reason in tally.failed.items():
        click.echo(f"{chat}: not audited: {reason}", err=True)
    summary = {
        "chats": tally.chats,
        "entries": tally.entries,
        "unverified": tally.unverified,
        "shredded": tally.shredded,
        "findings": len(tally.findings),
        "failed": len(tally.failed),
        "read_units": round(units, 1),
    }
    if is_json:
        click.echo(json.dumps({"summary": summary}))
        return
    click.echo(
        f"{_format_counts(tally)} ({tally.unverified} without a checksum), "
        f"{format_count(round(units), 'read unit')}: "
        + (format_count(len(tally.findings), "finding") if tally.findings else "nothing is wrong")
        + (f", {len(tally.failed)} not audited" if tally.failed else "")
        + (f"; {tally.shredded} with a deleted encryption key" if tally.shredded else "")
    )


for _module in iter_feature_modules("audit_cli"):
    audit.add_command(_module.COMMAND)
