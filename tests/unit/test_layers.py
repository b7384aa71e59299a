"""The arrows between packages point down, and a gateway loads only what it needs."""

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


# From the bottom up. Packages of one layer do not import each other.
LAYERS = (
    {"compiled", "errors"},
    {"domain"},
    {"protocol", "config", "telemetry", "process_runtime", "acceptor", "task_groups"},
    {"outbound", "aws_errors", "encryption"},
    {"hot", "warm", "cold", "auth"},
    {"service"},
    {"features", "operations"},
    {"container"},
    {"gateway", "api", "client", "loadtest"},
    {"workers"},
    {"cli", "dev"},
)
# What a feature adds to the processes above it belongs to their layers.
API_ROOMS = re.compile(r"(\w+_)?routes|middleware")
CLI_ROOMS = re.compile(r"(\w+_)?cli")
CONTAINER_ROOMS = re.compile(r"(gateway_)?container")
WORKER_ROOMS = {"worker", "chat_audit", "object_audit"}


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Return what each module imports, imports for type checkers included."""
    graph = grimp.build_graph("chatserver", "workers", cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def find_room(module: str) -> tuple[int, str]:
    """Return the layer of a module and the package that it counts as part of."""
    parts = module.split(".")
    package = "workers" if parts[0] == "workers" else parts[1]
    if parts[1:3] == ["loadtest", "bench"]:
        package = "dev"  # it starts its own servers
    elif package in {"features", "operations"} and len(parts) > 3:
        if API_ROOMS.fullmatch(parts[3]):
            package = "api"
        elif CLI_ROOMS.fullmatch(parts[3]):
            package = "cli"
        elif CONTAINER_ROOMS.fullmatch(parts[3]):
            package = "container"
        elif parts[3] in WORKER_ROOMS:
            package = "workers"
    return next((at, package) for at, layer in enumerate(LAYERS) if package in layer)


def test_imports_point_down() -> None:
    """A module imports its own package and layers below it."""
    upward = set()
    for module, imported in import_graph().items():
        for other in imported - {"chatserver"} if module != "chatserver" else ():
            (at, package), (other_at, other_package) = find_room(module), find_room(other)
            if other_at > at or (other_at == at and other_package != package):
                upward.add((module, other))

    assert upward == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Any order of reading works: what a module imports never imports the module."""
    assert list(graphlib.TopologicalSorter(import_graph()).static_order())


def test_gateway_contract_holds() -> None:
    """import-linter finds no chain of imports from a gateway to what it must not need."""
    done = run("-c", "from importlinter.cli import lint_imports_command as m; m()", "--no-cache")

    assert done.returncode == 0, done.stdout
    assert "Contracts: 1 kept, 0 broken" in done.stdout


def test_no_folder_holds_more_than_25_modules() -> None:
    """A folder's content is seen at one look."""
    folders = Counter(
        path.parent for top in ("chatserver", "workers") for path in (ROOT / top).rglob("*.py")
    )

    assert {folder: count for folder, count in folders.items() if count > 25} == {}


def test_gateway_imports_neither_http_framework_nor_aws() -> None:
    """A gateway process stays small, and nothing in it can call DynamoDB on its loop."""
    providers = {path for feature in list_features() for path in feature.gateway_ports.values()}
    modules = {path.partition(":")[0] for path in providers}
    loaded = loaded_by(", ".join(["chatserver.gateway.process.main", *modules]))

    assert "chatserver.hot.chats.group_commit" in loaded
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
