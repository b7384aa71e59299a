"""`chatserver doctor`: find problems with settings, Redis, DynamoDB and S3; suggest fixes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import click
import msgspec

from chatserver.command_options import with_options
from chatserver.config import Settings, list_sections, read_settings
from chatserver.domain.quantities import format_count
from chatserver.errors import ConfigError
from chatserver.extras import explain_missing
from chatserver.features.registry import list_features, load
from chatserver.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from chatserver.operations.doctor.model import DoctorFinding

_LABELS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


@click.command()
@with_options
async def doctor(
    *,
    is_json: Annotated[bool, "Print one JSON object per line."] = False,
    is_all: Annotated[bool, "Also print passed checks."] = False,
) -> None:
    """Check settings, Redis, DynamoDB and S3; report problems and how to fix them.

    Safe to run at any time. The command writes nothing, except a test object in the bucket, which
    it then deletes. The exit code is 1 if there is a problem, otherwise 0.
    """
    findings = await _find_all()
    for finding in findings:
        if is_json:
            click.echo(json.dumps(msgspec.structs.asdict(finding)))
        elif is_all or finding.level != "ok":
            _print(finding)
    problems = sum(finding.level == "problem" for finding in findings)
    notes = sum(finding.level == "note" for finding in findings)
    fine = len(findings) - problems - notes
    summary = f"{format_count(problems, 'problem')}, {format_count(notes, 'note')}, {fine} passed"
    click.echo(summary, err=True)
    sys.exit(1 if problems else 0)


def _print(finding: DoctorFinding) -> None:
    label, color = _LABELS[finding.level]
    click.echo(f"{click.style(f'{label:<8}', fg=color)}{finding.store}: {finding.what}")
    if finding.fix:
        click.echo(f"        → {finding.fix}")


async def _find_all() -> list[DoctorFinding]:
    from chatserver.operations.doctor.checks import run_checks
    from chatserver.operations.doctor.model import DoctorCheck, DoctorFinding

    try:
        settings, problems, broken = read_settings(requires_secret=True)
    except ConfigError as exc:  # a file of settings cannot be read, so any check would mislead
        findings = [DoctorFinding("settings", "problem", problem) for problem in exc.problems]
        return [
            *findings,
            DoctorFinding("settings", "note", "not checked: all stores, and all settings"),
        ]
    configure_logs(settings.telemetry.format, settings.telemetry.level, process="doctor")
    findings = [DoctorFinding("settings", "problem", problem) for problem in problems]
    workers = DoctorCheck("settings", (), functools.partial(_check_feature_workers, broken))
    return findings + await run_checks(settings, broken, [workers])


async def _check_feature_workers(
    broken: Collection[str], settings: Settings
) -> list[DoctorFinding]:
    """Run the checks of the feature workers that `worker all` starts with these settings.

    The workers of a feature are not checked if its section is in `broken`.
    """
    from chatserver.operations.doctor.model import DoctorFinding

    unusable = {list_sections()[section].__module__ for section in broken}
    findings = []
    for feature in list_features():
        if f"chatserver.features.{feature.name}.settings" in unusable:
            continue
        for name, worker in feature.workers.items():
            if not worker.check or not worker.is_in_all_of(settings):
                continue
            try:
                with explain_missing(f"worker `{name}`"):
                    load(worker.check)(settings)
            except ConfigError as exc:
                findings += [
                    DoctorFinding("settings", "problem", problem) for problem in exc.problems
                ]
            else:
                findings.append(DoctorFinding("settings", "ok", f"worker `{name}` can start"))
    return findings
