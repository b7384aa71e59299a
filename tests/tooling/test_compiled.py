"""Compiled hot modules: used only if they match their sources, with the same output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chatserver import compiled

ROOT = Path(__file__).parents[2]
SEEDS, STEPS = 10, 200
PRINT_MODULE_FILE = "import sys; from chatserver.domain import ids; sys.stdout.write(ids.__file__)"


@pytest.fixture(scope="module")
def build() -> dict[str, Any]:
    """Compile the modules if they are not current, and return their manifest."""
    subprocess.run([sys.executable, "deploy/build_hook.py"], cwd=ROOT, check=True, timeout=280)
    manifest: dict[str, Any] = json.loads(compiled.MANIFEST.read_text())
    return manifest


def run(*arguments: str, is_pure: bool) -> str:
    """Return the output of a Python process with the sources or the compiled modules."""
    env = {**os.environ, compiled.PURE_PYTHON: "1" if is_pure else "0"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=env, check=True, timeout=120, capture_output=True, text=True
    ).stdout


@pytest.mark.usefixtures("build")
def test_processes_run_compiled_modules_by_default() -> None:
    """A process with the sources is half as fast, and no other test would find this."""
    assert run("-c", PRINT_MODULE_FILE, is_pure=False).endswith("chatserver.domain.ids.so")
    assert run("-c", PRINT_MODULE_FILE, is_pure=True).endswith("ids.py")
    assert not compiled.is_active()  # tests replace parts of hot modules


@pytest.mark.usefixtures("build")
def test_compiled_send_path_writes_the_same_bytes() -> None:
    """Output to clients and Redis is equal for random frames and outcomes."""
    command = ("-m", "tests.support.send_path", str(SEEDS), str(STEPS))

    written = run(*command, is_pure=True)

    assert run(*command, is_pure=False) == written
    assert '"type":"ack"' in written
    assert '"type":"event"' in written
    assert '"type":"error"' in written


def find(name: str) -> bool:
    """Return whether an installed finder finds the module."""
    finders = [each for each in sys.meta_path if isinstance(each, compiled.CompiledFinder)]
    return any(finder.find_spec(name, None) for finder in finders)


@pytest.fixture
def installed(build: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that installs the finder with a changed manifest and reports its use."""
    monkeypatch.delenv(compiled.PURE_PYTHON, raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def install(**changed: Any) -> bool:
        manifest = tmp_path / "manifest.json"
        manifest.write_text(json.dumps({**build, **changed}))
        monkeypatch.setattr(compiled, "MANIFEST", manifest)
        compiled.install()
        return find("chatserver.domain.ids")

    return install


def test_current_modules_are_used(installed: Any) -> None:
    assert installed()


def test_modules_of_another_interpreter_are_ignored(installed: Any) -> None:
    assert not installed(interpreter="cpython-310")


def test_modules_of_an_edited_source_are_ignored(installed: Any, build: dict[str, Any]) -> None:
    """All modules are ignored: they call each other without a check of their sources."""
    assert not installed(
        sources={**build["sources"], "chatserver.domain.text_validation": "0" * 64}
    )


def test_modules_of_a_deleted_source_are_ignored(installed: Any) -> None:
    assert not installed(sources={"chatserver.domain.gone": "0" * 64})


def test_modules_without_a_manifest_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(compiled.PURE_PYTHON, raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(compiled, "MANIFEST", tmp_path / "manifest.json")

    compiled.install()

    assert not find("chatserver.domain.ids")
