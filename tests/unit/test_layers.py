"""The arrows between packages point down, and a gateway loads only what it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What would cost a gateway memory and start-up time, or block its loop.
NOT_IN_A_GATEWAY = {
    "aioboto3",
    "aiobotocore",
    "aiohttp",
    "boto3",
    "botocore",
    "fastapi",
    "flask",
    "httpx",
    "litestar",
    "requests",
    "starlette",
    "uvicorn",
    "chatserver.api",
    "chatserver.warm",
    "workers",
}


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program from the root of the repository."""
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=ROOT, check=False, timeout=100
    )


def loaded_by(module: str) -> set[str]:
    """Return all modules that a fresh interpreter has after importing one."""
    done = run("-c", f"import sys, {module}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_layers_import_contracts_hold() -> None:
    """Nobody imports upwards (import-linter, the contracts are in pyproject.toml)."""
    done = run("-c", "from importlinter.cli import lint_imports_command as m; m()", "--no-cache")

    assert done.returncode == 0, done.stdout
    assert "Contracts: 2 kept, 0 broken" in done.stdout


def test_layers_name_every_package() -> None:
    """A new package without a place in the order would be allowed to import anything."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    placed = {name for layer in layers for name in layer.split(" | ")}

    there = {
        f"chatserver.{path.stem}"
        for path in (ROOT / "chatserver").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
    }

    assert there <= placed


def test_gateway_imports_neither_http_framework_nor_aws() -> None:
    """A gateway process stays small, and nothing in it can call DynamoDB on its loop."""
    loaded = loaded_by("chatserver.gateway.process")

    assert "chatserver.hot.groupcommit" in loaded
    assert not loaded & NOT_IN_A_GATEWAY


def test_gateway_command_imports_no_more() -> None:
    """The command line loads a command's module when it runs it, not before."""
    loaded = loaded_by("chatserver.cli.gateway")

    assert not loaded & NOT_IN_A_GATEWAY


def test_domain_and_protocol_do_no_io() -> None:
    """Rules and wire are pure: they load no event loop and no client."""
    loaded = loaded_by(
        "chatserver.domain.messages, chatserver.domain.text, chatserver.protocol.codec"
    )

    assert not loaded & {"asyncio", "redis", "hiredis", "websockets", "structlog"}
