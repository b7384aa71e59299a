"""Data folder of `chatserver dev`: marker file, lock, secret and settings file.

.chatserver-dev   marks a folder that --fresh may empty; locked while in use
auth-secret       the key that signs tokens, created once, mode 600
settings.env      the settings of our processes, to source in a shell; mode 600
redis/ dynamodb/ s3/   the servers' data
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from chatserver.errors import ConfigError

MARK = ".chatserver-dev"
SECRET = "auth-secret"  # noqa: S105  a file name
SETTINGS = "settings.env"


@attrs.define(eq=False, repr=False)
class DataFolder:
    """A data folder locked by this process. The kernel releases the lock if the process dies."""

    path: Path
    _lock: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create or reuse the folder at `path`.

        Raises:
            ConfigError: the folder has other files but no `.chatserver-dev`, or is in use.
        """
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()) and not (path / MARK).exists():
                raise ConfigError(f"{path} contains other files: choose another --data folder")
            lock = os.open(path / MARK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise ConfigError(f"--data {path}: {exc.strerror}") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ConfigError(
                f"{path} is in use by another `chatserver dev`: stop it or choose another --data"
            ) from None
        return cls(path, lock)

    def clear(self) -> None:
        """Delete everything in the folder, except the marker."""
        for path in self.path.iterdir():
            if path.name == MARK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def close(self) -> None:
        os.close(self._lock)

    def read_secret(self) -> str:
        """Return the folder's secret. It is created on first use, so logins survive a restart."""
        path = self.path / SECRET
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            path.chmod(0o600)
            return path.read_text("ascii")
        with os.fdopen(file, "w", encoding="ascii") as new:
            new.write(secret := secrets.token_hex(32))
        return secret

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write the settings as a file that a shell can source."""
        path = self.path / SETTINGS
        path.unlink(missing_ok=True)  # create a new file: the existing mode can be more permissive
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as new:
            for name, value in settings.items():
                new.write(f"export {name}={shlex.quote(value)}\n")
