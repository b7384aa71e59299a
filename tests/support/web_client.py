"""Builds `clients/web` once for all test processes, if its sources have changed."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.support import typescript

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "web"
BUILD = ROOT / "chatserver" / "web_client"
SOURCES = (PACKAGE, ROOT / "clients" / "typescript" / "src")


@functools.cache
def build_web_client() -> Path:
    """Build the web client, as `make` does; return the folder of the build."""
    typescript.node()
    with typescript.locked():
        index = BUILD / "index.html"
        built_at = index.stat().st_mtime if index.exists() else 0.0
        if any(path.stat().st_mtime > built_at for path in _list_sources()):
            typescript.run("sh", "deploy/dev/setup.sh", "web", cwd=ROOT)
    return BUILD


def _list_sources() -> list[Path]:
    return [
        path
        for folder in SOURCES
        for path in folder.rglob("*")
        if path.is_file() and "node_modules" not in path.parts
    ]
