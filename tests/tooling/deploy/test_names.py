"""Settings and commands that deploy/ and docs/deploy.md mention exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from chatserver.cli.main import cli
from chatserver.config import list_variables
from tests.support.deployments import COMPOSE_CASES, DEPLOY, ROOT, render_chart, render_compose

# Variables that are read before the settings (chatserver/config/).
NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR"}
FOLDERS = ("docker", "compose", "helm", "terraform")
TEXTS = [
    *(
        file
        for folder in FOLDERS
        for file in sorted((DEPLOY / folder).rglob("*"))
        if file.is_file() and file.suffix != ".lock"
    ),
    ROOT / "docs" / "deploy.md",
]


def test_every_mentioned_setting_exists() -> None:
    """Settings in comments and documents are included, because users copy them."""
    known = list_variables().keys() | NOT_SETTINGS
    unknown = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in TEXTS
        for name in re.findall(r"\bCHAT_[A-Z0-9]+_[A-Z0-9_]*[A-Z0-9]\b", file.read_text("utf-8"))
        if name not in known
    }

    assert unknown == set()


def commands_in(file: Path) -> Iterator[list[str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        for found in re.findall(
            r"(?:--|exec|run --rm \w+|`)\s*chatserver((?: [a-z][\w-]*)+)", line
        ):
            yield found.split()


def check_command(args: list[str]) -> None:
    """Resolve the arguments to a command."""
    command: click.Command | None = cli
    context = click.Context(cli)
    for name in args:
        if not isinstance(command, click.Group):
            return  # the rest are its arguments
        command = command.get_command(context, name)
        assert command is not None, f"{' '.join(args)}: no command {name}"


def test_every_used_command_exists() -> None:
    """The chart, the Compose file and the documents are checked."""
    used = [args for file in TEXTS for args in commands_in(file)]
    for case in COMPOSE_CASES.values():
        services = render_compose(*case)["services"]
        used += [services[name]["command"] for name in ("gateway", "api", "worker", "tables")]
    for each in yaml.safe_load_all(render_chart("eks")):
        if each and each["kind"] in ("Deployment", "Job"):
            used.append(each["spec"]["template"]["spec"]["containers"][0]["args"])

    for args in used:
        check_command(args)
    assert {args[0] for args in used} >= {"gateway", "api", "worker", "tables", "doctor"}


def test_unknown_command_is_detected() -> None:
    """This proves that the check above can fail."""
    with pytest.raises(AssertionError, match="no command aply"):
        check_command(["tables", "aply"])
