"""Build hook: compiles the hot modules with mypyc, for wheels and for a checkout.

`hatchling` runs `CompileHook` for each wheel. `python deploy/build_hook.py` compiles the modules of
this checkout in place, if they have changed. The modules are listed in pyproject.toml. Without a C
compiler nothing is compiled, and the server runs the same sources in the interpreter.

Only one process compiles at a time. The manifest is removed before the first compiled module is
replaced, and written after the last one: a process that starts in between runs the sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # a checkout compiles without hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "chatserver" / "compiled"
MANIFEST = FOLDER / "manifest.json"  # checked by `chatserver.compiled`
GROUP = "chatserver"  # prefix of the shared library: chatserver__mypyc
OPTIMIZATION = "3"
MYPY_OPTIONS = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]


class CompileHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Adds the compiled modules to a wheel, which is then specific to the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is an editable one or there is no C compiler."""
        if version == "editable" or not compile_checkout():
            return
        for file in (*FOLDER.glob("*.so"), MANIFEST):
            build_data["force_include"][str(file)] = str(file.relative_to(ROOT))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def find_compiler() -> str | None:
    """Return the C compiler; None without a compiler or the headers of this Python."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(command.split()[0]) if header.exists() else None


def list_modules() -> list[str]:
    """Return the paths of the modules to compile."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"][
        "modules"
    ]
    return modules


def build_manifest(modules: list[str]) -> dict[str, Any]:
    """Return the interpreter and the hash of each source."""
    hashes = {
        module.removesuffix(".py").replace("/", "."): hashlib.sha256(
            (ROOT / module).read_bytes()
        ).hexdigest()
        for module in modules
    }
    return {"interpreter": sys.implementation.cache_tag, "sources": hashes}


def build_extensions(build: str, modules: list[str]) -> None:
    """Compile the modules to extension modules below `build`."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    extensions = mypycify(
        [*MYPY_OPTIONS, *modules],
        group_name=GROUP,
        opt_level=OPTIMIZATION,
        debug_level="0",
        target_dir=f"{build}/c",
    )
    command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.build_lib, command.build_temp = f"{build}/lib", f"{build}/temp"
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()


def is_current() -> bool:
    """Return whether the compiled modules are those of the sources."""
    with contextlib.suppress(OSError, ValueError):  # missing, or written at this moment
        return bool(json.loads(MANIFEST.read_text()) == build_manifest(list_modules()))
    return False


@contextlib.contextmanager
def lock_build() -> Iterator[None]:
    """Hold the lock of the folder of compiled modules; it ends with the process."""
    import fcntl  # not on Windows, where wheels are built without a compiler

    folder = os.open(FOLDER, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another process that compiles the send path")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def compile_checkout() -> bool:
    """Compile the modules of this checkout if they have changed; False without a C compiler."""
    if is_current():
        return True
    if not find_compiler():
        print("no C compiler or Python headers: the server runs uncompiled, at half the speed")
        return False
    with lock_build():
        if not is_current():
            compile_modules(list_modules())
    return True


def compile_modules(modules: list[str]) -> None:
    """Compile the modules and replace those of the last build. Needs the lock."""
    print(f"compiling {len(modules)} modules of the send path with mypyc")
    manifest = build_manifest(modules)
    with tempfile.TemporaryDirectory() as build:
        # In a separate process, because mypyc and setuptools print and may exit.
        command = [sys.executable, __file__, "--extensions", build, *modules]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cannot compile the send path:\n{done.stdout}{done.stderr}")
        if build_manifest(modules) != manifest:
            sys.exit("the sources changed while they were compiled, so this build is not used")
        for old in (MANIFEST, *FOLDER.glob("*.so")):
            old.unlink(missing_ok=True)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for file in Path(build, "lib").rglob(f"*{suffix}"):
            name = ".".join(file.relative_to(Path(build, "lib")).parts).removesuffix(suffix)
            shutil.copyfile(file, FOLDER / f"{name}.so")
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")
    print("compiled: processes that start from now on use it")


def stop_group(*_: object) -> None:
    """End the compilers with this process, which leads their process group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--extensions"]:
        build_extensions(sys.argv[2], sys.argv[3:])
    else:
        if os.getpgrp() == os.getpid():  # started by `chatserver dev`
            signal.signal(signal.SIGTERM, stop_group)
        compile_checkout()
