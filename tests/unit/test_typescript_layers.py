"""Imports between folders of the TypeScript packages point to lower layers."""

from __future__ import annotations

import functools
import graphlib
import os
import re
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[2] / "clients"
WEB, SDK = CLIENTS / "web" / "src", CLIENTS / "typescript" / "src"

# From the bottom up: folders of `src`, and modules beside them. Those of one layer do not import
# each other. A module that two features share belongs to a lower layer.
LAYERS = {
    WEB: (
        {"i18n", "env.d.ts"},
        {"design"},
        {"data"},
        {"page"},
        {"directory", "session"},
        # Features.
        {"chats", "content", "operations", "search", "settings"},
        {"companions", "moderation", "share", "social"},
        {"conversation", "people"},
        {"group"},
        {"shell"},
        # Entry points.
        {"main.tsx", "service_worker"},
    ),
    SDK: (
        {"generated"},
        {"state"},
        {"http", "stores"},
        {"engine", "node"},
        {"tabs"},
        {"client"},
        {"index.ts", "react"},
    ),
}
IMPORT = re.compile(r'\b(?:from|import)\s*\(?\s*"(\.{1,2}/?[^"]*)"')
SUFFIXES = ("", ".ts", ".tsx", "/index.ts")


@functools.cache
def import_graph(root: Path) -> dict[str, set[str]]:
    """Return the imports of each module, including types and imports on demand."""
    paths = [path for path in sorted(root.rglob("*.ts*")) if path.is_file()]
    return {
        path.relative_to(root).as_posix(): {
            find_module(root, path, name) for name in IMPORT.findall(path.read_text("utf-8"))
        }
        for path in paths
    }


def find_module(root: Path, importer: Path, name: str) -> str:
    """Return the file of an import relative to `root`; the SDK names the compiled files."""
    if root == SDK:
        name = name.removesuffix(".js")
    base = os.path.normpath(importer.parent / name)
    path = next(found for end in SUFFIXES if (found := Path(base + end)).is_file())
    return path.relative_to(root).as_posix()


def find_layer(root: Path, module: str) -> tuple[int, str]:
    """Return the layer of a module and the folder that it belongs to."""
    folder = module.split("/")[0]
    return next((at, folder) for at, layer in enumerate(LAYERS[root]) if folder in layer)


@pytest.mark.parametrize("root", LAYERS, ids=["web", "sdk"])
def test_typescript_imports_are_within_a_folder_or_from_lower_layers(root: Path) -> None:
    """Folders of one layer do not import each other."""
    upward = set()
    for module, imported in import_graph(root).items():
        layer, folder = find_layer(root, module)
        for other in imported:
            other_layer, other_folder = find_layer(root, other)
            if other_layer > layer or (other_layer == layer and other_folder != folder):
                upward.add((module, other))

    assert upward == set()


@pytest.mark.parametrize("root", LAYERS, ids=["web", "sdk"])
def test_typescript_imports_have_no_cycles(root: Path) -> None:
    """Imports of types count too."""
    assert list(graphlib.TopologicalSorter(import_graph(root)).static_order())


@pytest.mark.parametrize("root", LAYERS, ids=["web", "sdk"])
def test_typescript_layers_name_each_folder_once(root: Path) -> None:
    """A new folder gets its place in the layers."""
    names = [name for layer in LAYERS[root] for name in layer]

    assert sorted(names) == sorted({module.split("/")[0] for module in import_graph(root)})
