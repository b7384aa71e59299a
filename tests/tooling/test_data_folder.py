"""The settings file of `chatserver dev`, as a shell reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chatserver.dev.data_folder import SETTINGS, DataFolder
from tests.support.deadlines import EXIT_S


def test_settings_file_is_readable_by_a_shell_and_its_owner_only(tmp_path: Path) -> None:
    """Any value is quoted correctly, and a second write replaces the first."""
    folder = DataFolder.open(tmp_path / "dev")
    folder.write_settings({"CHAT_OLD": "1"})
    folder.write_settings({"CHAT_ONE": """it's "$HOME" and `more`""", "CHAT_TWO": '["a"]'})
    path = tmp_path / "dev" / SETTINGS

    script = f'. {path}; printf "%s|%s|%s" "$CHAT_ONE" "$CHAT_TWO" "$CHAT_OLD"'
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True, timeout=EXIT_S
    )

    assert done.stdout == """it's "$HOME" and `more`|["a"]|"""
    assert path.stat().st_mode & 0o777 == 0o600
    folder.close()
