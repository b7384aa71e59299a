"""Settings and commands that deploy/ and docs/deploy.md name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from chatserver.cli.main import cli
from chatserver.config import Settings, list_variables
from tests.support.deployments import BOXES, DEPLOY, ROOT, render_chart, render_compose

# Read by all of the command line, or beside the settings (chatserver/config/).
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


def test_every_setting_that_is_named_is_one() -> None:
    """Also in comments and documents: a copied name is a real setting."""
    known = list_variables(Settings).keys() | NOT_SETTINGS
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


def check(words: list[str]) -> None:
    """Walk down the groups to the command that the words name."""
    command: click.Command | None = cli
    context = click.Context(cli)
    for word in words:
        if not isinstance(command, click.Group):
            return  # what follows are its arguments
        command = command.get_command(context, word)
        assert command is not None, f"{' '.join(words)}: there is no {word}"


def test_every_command_that_is_run_is_one() -> None:
    """In the chart, the Compose file and the documents."""
    asked = [words for file in TEXTS for words in commands_in(file)]
    for box in BOXES.values():
        services = render_compose(*box)["services"]
        asked += [services[name]["command"] for name in ("gateway", "api", "worker", "tables")]
    for each in yaml.safe_load_all(render_chart("eks")):
        if each and each["kind"] in ("Deployment", "Job"):
            asked.append(each["spec"]["template"]["spec"]["containers"][0]["args"])

    for words in asked:
        check(words)
    assert {words[0] for words in asked} >= {"gateway", "api", "worker", "tables", "doctor"}


def test_a_command_that_is_none_is_seen() -> None:
    """The check above can fail."""
    with pytest.raises(AssertionError, match="no aply"):
        check(["tables", "aply"])
