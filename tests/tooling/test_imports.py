"""Imports of a new interpreter: a gateway, the domain and `--help` load only what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from chatserver.features.registry import list_features
from chatserver.requests.registry import list_operations
from tests.support.deadlines import EXIT_S

ROOT = Path(__file__).parents[2]
# These modules would cost a gateway memory and startup time, or block its loop.
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
HEAVY = ("redis", "litestar", "uvicorn", "aioboto3", "pydantic", "structlog", "rich", "jwt")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program from the root of the repository."""
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=ROOT, check=False, timeout=100
    )


def loaded_by(module: str) -> set[str]:
    """Return all modules that a new interpreter loads for an import."""
    done = run("-c", f"import sys, {module}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_gateway_contract_holds() -> None:
    """import-linter finds no import chain from a gateway to a forbidden module."""
    done = run("-c", "from importlinter.cli import lint_imports_command as m; m()", "--no-cache")

    assert done.returncode == 0, done.stdout
    assert "Contracts: 1 kept, 0 broken" in done.stdout


def test_gateway_imports_neither_http_framework_nor_aws() -> None:
    """A gateway process stays small, and nothing in it can call DynamoDB on its loop."""
    providers = {path for feature in list_features() for path in feature.gateway_ports.values()}
    modules = {path.partition(":")[0] for path in providers}
    handlers = [each.handler for each in list_operations().values() if each.handler]
    requests = {handler.__module__ for handler in handlers}
    loaded = loaded_by(", ".join(["chatserver.gateway.process.main", *modules, *requests]))

    assert "chatserver.hot.chats.group_commit" in loaded
    assert not loaded & NOT_IN_A_GATEWAY


def test_gateway_command_imports_neither_http_framework_nor_aws() -> None:
    """The command line loads a command's module when it runs it, not before."""
    loaded = loaded_by("chatserver.cli.gateway")

    assert not loaded & NOT_IN_A_GATEWAY


def test_domain_and_protocol_do_no_io() -> None:
    """Domain rules and codec load no event loop and no client."""
    loaded = loaded_by(
        "chatserver.domain.messages, chatserver.domain.text_validation, chatserver.protocol.codec"
    )

    assert not loaded & {"asyncio", "redis", "hiredis", "websockets", "structlog"}


def test_help_imports_no_heavy_modules() -> None:
    """`chatserver --help` is fast because it loads no command's module."""
    program = (
        "import sys\n"
        "from chatserver.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=EXIT_S
    )

    assert done.stdout.splitlines()[-1] == "[]"
