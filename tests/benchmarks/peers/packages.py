"""Packages of other servers, from npm, PyPI and Debian, in a cache folder."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from chatserver.dev.binaries import get_cache_folder
from tests.benchmarks.peers.load import PeerFailed

FETCH_S = 600.0


def fetch(packages: str) -> Path:
    """Return the folder with packages, which are fetched on first use; nothing is installed.

    `packages` is a registry (`npm`, `pypi` or `debian`) and names, or nothing.

    Raises:
        PeerFailed: they cannot be fetched.
    """
    cache = get_cache_folder() / "peers"
    cache.mkdir(parents=True, exist_ok=True)
    if not packages:
        return cache
    registry, *names = packages.split()
    folder = cache / f"{registry}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as temporary:
            _fetch(registry, names, Path(temporary))
            Path(temporary).rename(folder)
    return folder


def find(packages: Path, pattern: str) -> Path:
    """Return the file or folder of the packages that matches a pattern. Raises PeerFailed."""
    for path in packages.glob(pattern):
        return path
    raise PeerFailed(f"the packages have no {pattern}")


def _fetch(registry: str, names: list[str], folder: Path) -> None:
    if registry == "npm":
        (folder / "package.json").write_text('{"private": true}')
        _run(folder, "npm install --no-audit --no-fund --ignore-scripts --loglevel=error", names)
    elif registry == "pypi":
        pip = f"{sys.executable} -m pip install --no-deps --only-binary :all: --quiet --target"
        _run(folder, pip, [str(folder), *names])
    else:
        install = "apt-get install --simulate --no-install-recommends"
        needed = re.findall(r"^Inst (\S+)", _run(folder, install, names), re.MULTILINE)
        _run(folder, "apt-get download", sorted({*names, *needed}))
        for file in folder.glob("*.deb"):
            _run(folder, "dpkg-deb --extract", [file.name, "."])
            file.unlink()


def _run(folder: Path, command: str, arguments: list[str]) -> str:
    try:
        done = subprocess.run(
            [*command.split(), *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise PeerFailed(f"{exc} {getattr(exc, 'stderr', '')}"[-500:]) from exc
    return done.stdout
