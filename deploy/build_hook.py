"""Build hook: compiles the hot modules with mypyc, for wheels and for a checkout.

`hatchling` runs `CompileHook` for each wheel. `python deploy/build_hook.py` compiles the modules of
this checkout in place, if they have changed. The modules are listed in pyproject.toml. Without a C
compiler nothing is compiled, and the server runs the same sources in the interpreter.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
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


def compile_checkout() -> bool:
    """Compile the modules of this checkout if they have changed; False without a C compiler."""
    modules = list_modules()
    manifest = build_manifest(modules)
    if MANIFEST.exists() and json.loads(MANIFEST.read_text()) == manifest:
        return True
    if not find_compiler():
        print("no C compiler or Python headers: the server runs uncompiled, at half the speed")
        return False
    print(f"compiling {len(modules)} modules of the send path with mypyc")
    for old in (*FOLDER.glob("*.so"), MANIFEST):
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as build:
        # In a separate process, because mypyc and setuptools print and may exit.
        command = [sys.executable, __file__, "--extensions", build, *modules]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cannot compile the send path:\n{done.stdout}{done.stderr}")
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for file in Path(build, "lib").rglob(f"*{suffix}"):
            name = ".".join(file.relative_to(Path(build, "lib")).parts).removesuffix(suffix)
            shutil.copyfile(file, FOLDER / f"{name}.so")
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["--extensions"]:
        build_extensions(sys.argv[2], sys.argv[3:])
    else:
        compile_checkout()
