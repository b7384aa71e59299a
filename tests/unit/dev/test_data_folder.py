"""The data folder of `chatserver dev`: one process, one secret, readable only by its owner."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from chatserver.dev.data_folder import DataFolder
from chatserver.errors import ConfigError


def test_reopened_folder_has_the_same_secret(tmp_path: Path) -> None:
    """A login survives a restart."""
    first = DataFolder.open(tmp_path / "data")
    secret = first.read_secret()
    first.close()

    again = DataFolder.open(tmp_path / "data")

    assert again.read_secret() == secret
    assert len(secret.encode()) >= 32
    again.close()


def test_secret_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    """The mode is 600 at creation, and is restored if it was changed."""
    folder = DataFolder.open(tmp_path / "data")
    folder.read_secret()
    path = folder.path / "auth-secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    path.chmod(0o644)
    folder.read_secret()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    folder.close()


def test_fresh_folder_is_empty_and_has_a_new_secret(tmp_path: Path) -> None:
    """`--fresh` removes all earlier data."""
    first = DataFolder.open(tmp_path / "data")
    secret = first.read_secret()
    (first.path / "redis" / "appendonlydir").mkdir(parents=True)
    (first.path / "redis" / "appendonlydir" / "x.aof").write_text("data")
    first.close()

    fresh = DataFolder.open(tmp_path / "data")
    fresh.clear()

    assert [path.name for path in fresh.path.iterdir()] == [".chatserver-dev"]
    assert fresh.read_secret() != secret
    fresh.close()


def test_fresh_does_not_follow_links(tmp_path: Path) -> None:
    """`--fresh` removes a link, not the files that it points to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("kept")
    DataFolder.open(tmp_path / "data").close()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")

    folder = DataFolder.open(tmp_path / "data")
    folder.clear()
    folder.close()

    assert (tmp_path / "elsewhere" / "mine").read_text() == "kept"


def test_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    """`--data ~ --fresh` does not delete a home folder."""
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(ConfigError, match="contains other files"):
        DataFolder.open(tmp_path)

    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert not (tmp_path / ".chatserver-dev").exists()


def test_folder_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    """Two runs never share a folder, and `--fresh` never deletes the data of a running server."""
    first = DataFolder.open(tmp_path / "data")
    secret = first.read_secret()

    with pytest.raises(ConfigError, match="in use by another"):
        DataFolder.open(tmp_path / "data")

    assert first.read_secret() == secret
    first.close()
    DataFolder.open(tmp_path / "data").close()


def test_error_for_folder_that_cannot_be_created_has_its_path(tmp_path: Path) -> None:
    """A file may already have the name of the folder."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"--data .*/file"):
        DataFolder.open(tmp_path / "file")
