"""Builds `clients/typescript` once for all test processes: npm packages, the package and its tests.

The packages are in `clients/typescript/node_modules`, by `npm ci` from the lock file. They are
installed again when the lock file changes, and the sources are compiled when they change.

`python -m tests.support.typescript` writes the generated types again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
TOOLS = ROOT / ".tools"
BUILD_S = 250.0
SOURCES = ("src", "tests", "scripts")


def node() -> str:
    """Return the path of Node; `deploy/dev/setup.sh typescript` has installed it."""
    install()
    own = TOOLS / "node" / "bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    assert found is not None, "there is no Node"
    return found


def node_command() -> list[str]:
    """Return the first words of a command line that runs a module in Node."""
    return [node()]


def deno_command() -> list[str]:
    """Return the first words of a command line that runs a module in Deno with its permissions."""
    return [*deno("run"), "--allow-write"]


def deno(subcommand: str) -> list[str]:
    """Return a Deno command that reads `node_modules` and connects only to loopback."""
    install()
    (binary,) = (PACKAGE / "node_modules" / "@deno").glob("linux-*/deno")
    options = ["--no-lock", "--node-modules-dir=manual", "--allow-read", "--allow-env"]
    return [str(binary), subcommand, *options, "--allow-net=127.0.0.1"]


@functools.cache
def install() -> None:
    """Install Node, if it is missing, and the development tools of the package."""
    with locked():
        installed = PACKAGE / "node_modules" / ".ready"
        wanted = (PACKAGE / "package-lock.json").read_bytes()
        if not installed.exists() or installed.read_bytes() != wanted:
            run("sh", "deploy/dev/setup.sh", "typescript", cwd=ROOT)


@functools.cache
def build() -> Path:
    """Compile the package and its tests; return the folder of the package."""
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
    program = node()
    with locked():
        built = PACKAGE / "build" / ".ready"
        wanted = _hash(["package.json", "tsconfig.json", "tsconfig.tests.json", *SOURCES])
        if not built.exists() or built.read_text() != wanted:
            for folder in ("dist", "build"):
                shutil.rmtree(PACKAGE / folder, ignore_errors=True)
            for project in ("tsconfig.json", "tsconfig.tests.json"):
                run(program, str(compiler), "-p", project, cwd=PACKAGE)
            built.write_text(wanted)
    return PACKAGE


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Allow only one test process at a time to install or build."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "typescript.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(*command: str, cwd: Path, deadline_s: float = BUILD_S) -> str:
    """Run a command; return its output."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}{done.stderr[-4000:]}"
    return done.stdout


def _hash(names: list[str]) -> str:
    files = [
        path
        for name in names
        for path in ([PACKAGE / name] if "." in name else sorted((PACKAGE / name).rglob("*")))
        if path.is_file()
    ]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    run(node(), "scripts/generate_types.mjs", cwd=PACKAGE)
