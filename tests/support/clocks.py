"""Skewed clocks for processes, using libfaketime (the Debian package of that name).

A `SkewedClock` is a file with an offset; processes started with its variables read it once a
second. Monotonic clocks are unaffected. Redis and the other servers keep the machine's clock:
libfaketime cannot run Debian's redis-server.
"""

from __future__ import annotations

from pathlib import Path

_FOLDERS = ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib")


def find_faketime() -> Path | None:
    """Return the path of the preload library, if installed."""
    for folder in map(Path, _FOLDERS):
        for pattern in ("*/faketime/libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1"):
            for path in folder.glob(pattern):
                return path
    return None


class SkewedClock:
    """A clock with an adjustable offset, shared by several processes."""

    def __init__(self, path: Path, library: Path | None) -> None:
        self._path = path
        self._library = library
        self.set(0.0)

    def set(self, offset_s: float) -> None:
        """Set the offset of the clock."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{offset_s:+.3f}\n")
        new.replace(self._path)

    def variables(self) -> dict[str, str]:
        """Return the environment variables that apply this clock, or none without the library."""
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }
