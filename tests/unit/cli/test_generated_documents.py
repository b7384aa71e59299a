"""docs/settings.md and docs/commands.md match the code and are complete."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from chatserver.cli.main import COMMANDS, cli
from chatserver.config import list_sections
from deploy.documents import generated_documents
from deploy.documents.generated_documents import DOCUMENTS

FOLDER = Path(__file__).parents[3] / "docs"
SETTINGS_TEXT = (FOLDER / "settings.md").read_text(encoding="utf-8")
SETTINGS = [
    (section, name, one)
    for section, kind in list_sections().items()
    for name, one in kind.model_fields.items()
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_committed_settings_or_commands_document_is_current(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a setting or a command changes its document; the terminal width does not.

    If this fails, run `make docs`.
    """
    # click caches the help option of a command, with the names that its first context had.
    for context in generated_documents._iter_contexts(cli, "chatserver", None):
        context.command._help_option = None
    monkeypatch.setenv("COLUMNS", "60")

    assert (FOLDER / f"{name}.md").read_text("utf-8") == DOCUMENTS[name]()


def test_settings_document_has_each_setting_with_a_description() -> None:
    """Each setting is explained, so nobody has to read the code."""
    rows = re.findall(
        r"^\| `CHAT_(\w+)` \| ([^|]+) \| ([^|]+) \|(?:[^|\\]|\\.)*\| (.+) \|$",
        SETTINGS_TEXT,
        re.MULTILINE,
    )

    assert [row[0] for row in rows] == [
        f"{section}_{name}".upper() for section, name, _ in SETTINGS
    ]
    assert [one for one in SETTINGS if not one[2].description] == []
    assert "SecretStr" not in SETTINGS_TEXT


def test_commands_document_has_each_command_with_each_option() -> None:
    """A new command or option without documentation fails."""
    text = (FOLDER / "commands.md").read_text(encoding="utf-8")
    context = click.Context(cli)

    for name in COMMANDS:
        section = text.partition(f"\n### chatserver {name}\n")[2]
        assert section, name
        command = cli.get_command(context, name)
        assert command is not None
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        for option in [one for one in shown if isinstance(one, click.Option)]:
            assert all(each in section for each in option.opts), (name, option.opts)
