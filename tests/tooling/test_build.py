"""Builds of compiled modules: one at a time, used only when complete and of the current sources."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chatserver import compiled
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import eventually

ROOT = Path(__file__).parents[2]
BUILD_S = 120.0
HOOK = "deploy/build_hook.py"
PYPROJECT = """
[tool.hatch.build.targets.wheel.hooks.custom]
modules = ["chatserver/small.py"]
"""
PRINT = "import chatserver.small as s; print(s.VALUE, s.__file__.endswith('.so'))"
# Starts the compiler when the file `go` exists.
COMPILER = """#!/bin/sh
: >"{folder}/started"
while [ ! -e "{folder}/go" ]; do sleep 0.05; done
exec cc "$@"
"""


class Checkout:
    """A checkout with one module to compile, and a compiler that waits for the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "chatserver" / "small.py"
        for name in (HOOK, "chatserver/compiled/__init__.py"):
            (folder / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "chatserver" / "__init__.py").write_text(
            "from chatserver import compiled\ncompiled.install()\n"
        )
        self.source.write_text("VALUE: int = 1\n")
        compiler = folder / "cc"
        compiler.write_text(COMPILER.format(folder=folder))
        compiler.chmod(0o755)
        env = {name: os.environ[name] for name in os.environ if name != compiled.PURE_PYTHON}
        self.env = {**env, "CC": str(compiler), "PYTHONUNBUFFERED": "1"}
        self.builds: list[Build] = []

    def start_build(self) -> Build:
        build = Build(self)
        self.builds.append(build)
        return build

    async def wait_for_compiler(self) -> None:
        await eventually((self.folder / "started").exists, BUILD_S, "the compiler was started")

    def release_compiler(self) -> None:
        (self.folder / "go").touch()

    def run_module(self) -> str:
        """Return the value of the module, and whether it is compiled."""
        command = [sys.executable, "-c", PRINT]
        return subprocess.check_output(
            command, cwd=self.folder, env=self.env, text=True, timeout=EXIT_S
        ).strip()


class Build:
    """A running build, in a session of its own, as `chatserver dev` starts it."""

    def __init__(self, checkout: Checkout) -> None:
        self._output = checkout.folder / f"build-{len(checkout.builds)}.out"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, HOOK],
                cwd=checkout.folder,
                env=checkout.env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self._output.read_text()

    def exit_code(self) -> int:
        return self.process.wait(BUILD_S)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    yield made
    for build in made.builds:
        if build.process.poll() is None:
            os.killpg(build.process.pid, signal.SIGKILL)
            build.exit_code()


async def test_two_builds_at_once_compile_once(checkout: Checkout) -> None:
    """The second build waits for the first, and uses its result."""
    first = checkout.start_build()
    await checkout.wait_for_compiler()
    second = checkout.start_build()
    await eventually(lambda: "waiting for another process" in second.text(), BUILD_S, "it waits")
    assert checkout.run_module() == "1 False"

    checkout.release_compiler()

    assert (first.exit_code(), second.exit_code()) == (0, 0), first.text() + second.text()
    assert "compiled: processes that start from now on use it" in first.text()
    assert "compil" not in second.text().partition("\n")[2]
    assert checkout.run_module() == "1 True"


async def test_build_of_sources_that_change_meanwhile_is_not_used(checkout: Checkout) -> None:
    """Its modules could be of either source."""
    build = checkout.start_build()
    await checkout.wait_for_compiler()
    checkout.source.write_text("VALUE: int = 2\n")

    checkout.release_compiler()

    assert build.exit_code() == 1
    assert "the sources changed while they were compiled" in build.text()
    assert checkout.run_module() == "2 False"
    checkout.source.write_text("VALUE: int = 1\n")
    assert checkout.run_module() == "1 False"
    checkout.source.write_text("VALUE: int = 2\n")
    assert checkout.start_build().exit_code() == 0
    assert checkout.run_module() == "2 True"


async def test_stopped_build_ends_its_compilers(checkout: Checkout) -> None:
    """Ctrl-C in `chatserver dev` leaves no process and no build; the next build succeeds."""
    build = checkout.start_build()
    await checkout.wait_for_compiler()
    compilers = psutil.Process(build.process.pid).children(recursive=True)
    assert compilers

    build.process.terminate()

    assert build.exit_code() == 1
    assert psutil.wait_procs(compilers, EXIT_S)[1] == []
    assert checkout.run_module() == "1 False"
    checkout.release_compiler()
    assert checkout.start_build().exit_code() == 0
    assert checkout.run_module() == "1 True"
