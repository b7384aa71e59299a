"""Imports between packages point to lower layers."""

from __future__ import annotations

import functools
import graphlib
import re
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]


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
    if package in {"features", "operations"} and len(parts) > 3:
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


def test_no_folder_has_more_than_25_modules() -> None:
    """Larger folders are hard to read."""
    folders = Counter(
        path.parent for top in ("chatserver", "workers") for path in (ROOT / top).rglob("*.py")
    )

    assert {folder: count for folder, count in folders.items() if count > 25} == {}
