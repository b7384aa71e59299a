"""Imports between packages point to lower layers, and a gateway loads only what it needs."""

from __future__ import annotations

import functools
import graphlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp

from chatserver.features.registry import list_features
from chatserver.requests.registry import list_operations

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


# From the bottom up. Packages of one layer do not import each other.
LAYERS = (
    {"compiled", "errors"},
    {"domain", "extras", "feature_modules", "request_targets"},
    {
        *("protocol", "config", "telemetry", "process_runtime", "cpu_priority"),
        *("connection_acceptor", "task_groups", "aws_session"),
    },
    {"outbound", "aws_errors", "encryption", "command_options"},
    {"hot", "warm", "cold", "auth"},
    {"service"},
    {"features", "operations"},
    {"container"},
    {"requests"},
    {"gateway", "api", "client", "loadtest"},
    {"workers"},
    {"cli", "dev"},
)
# Modules of a feature that extend processes belong to the layers of these processes.
API_MODULES = re.compile(r"(\w+_)?routes|middleware")
CLI_MODULES = re.compile(r"(\w+_)?cli|doctor")
CONTAINER_MODULES = re.compile(r"(gateway_)?container")
WORKER_MODULES = {"worker", "chat_audit", "object_audit"}


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Return the imports of each module, including those for type checkers."""
    graph = grimp.build_graph("chatserver", "workers", cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def find_layer(module: str) -> tuple[int, str]:
    """Return the layer of a module and the package that it belongs to."""
    parts = module.split(".")
    package = "workers" if parts[0] == "workers" else parts[1]
    if parts[1:3] == ["loadtest", "bench"]:
        package = "dev"  # it starts its own servers
    elif package in {"features", "operations"} and len(parts) > 3:
        if API_MODULES.fullmatch(parts[3]):
            package = "api"
        elif CLI_MODULES.fullmatch(parts[3]):
            package = "cli"
        elif CONTAINER_MODULES.fullmatch(parts[3]):
            package = "container"
        elif parts[3] == "requests":
            package = "requests"
        elif parts[3] in WORKER_MODULES:
            package = "workers"
    return next((at, package) for at, layer in enumerate(LAYERS) if package in layer)


def test_imports_are_within_a_package_or_from_lower_layers() -> None:
    """Packages of one layer do not import each other."""
    upward = set()
    for module, imported in import_graph().items():
        for other in imported - {"chatserver"} if module != "chatserver" else ():
            (at, package), (other_at, other_package) = find_layer(module), find_layer(other)
            if other_at > at or (other_at == at and other_package != package):
                upward.add((module, other))

    assert upward == set()


def test_imports_have_no_cycles() -> None:
    """Imports for type checkers count too."""
    assert list(graphlib.TopologicalSorter(import_graph()).static_order())


def test_gateway_contract_holds() -> None:
    """import-linter finds no import chain from a gateway to a forbidden module."""
    done = run("-c", "from importlinter.cli import lint_imports_command as m; m()", "--no-cache")

    assert done.returncode == 0, done.stdout
    assert "Contracts: 1 kept, 0 broken" in done.stdout


def test_no_folder_has_more_than_25_modules() -> None:
    """Larger folders are hard to read."""
    folders = Counter(
        path.parent for top in ("chatserver", "workers") for path in (ROOT / top).rglob("*.py")
    )

    assert {folder: count for folder, count in folders.items() if count > 25} == {}


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
