"""Modules compiled with mypyc, and the import hook that loads them instead of their sources.

A build compiles the modules of the send path with mypyc (`deploy/build_hook.py`) and writes them to
this folder, together with `manifest.json`: the interpreter and the hash of each source. Compiled
modules are used only if the interpreter and all hashes match, so an edited source is never ignored.
Otherwise, or with `CHATSERVER_PURE_PYTHON=1`, the interpreter runs the sources.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
MANIFEST = FOLDER / "manifest.json"
PURE_PYTHON = "CHATSERVER_PURE_PYTHON"
RUNTIME = "chatserver__mypyc"  # the library that all compiled modules share


class CompiledFinder(importlib.abc.MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._files = {name: FOLDER / f"{name}.so" for name in (*names, RUNTIME)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def get_source_file(name: str) -> Path:
    return ROOT.joinpath(*name.split(".")).with_suffix(".py")


def hash_source(name: str) -> str:
    """Return the SHA-256 of a module's source in hex, as stored in `manifest.json`."""
    return hashlib.sha256(get_source_file(name).read_bytes()).hexdigest()


def is_active() -> bool:
    """Return whether this process runs the compiled modules."""
    return any(isinstance(finder, CompiledFinder) for finder in sys.meta_path)


def describe() -> str:
    """Return the build that this process runs, for its output."""
    return "compiled" if is_active() else "pure Python"


def install() -> None:
    """Use the compiled modules if they match this interpreter and the sources."""
    if os.environ.get(PURE_PYTHON) == "1" or is_active():
        return
    try:
        manifest = json.loads(MANIFEST.read_bytes())
        sources: dict[str, str] = manifest["sources"]
        is_current = manifest["interpreter"] == sys.implementation.cache_tag and all(
            hash_source(name) == source_hash for name, source_hash in sources.items()
        )
    except (OSError, ValueError, KeyError):
        return
    if is_current:
        sys.meta_path.insert(0, CompiledFinder(list(sources)))
