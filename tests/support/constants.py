"""Replaces named constants, such as bounds and deadlines that are too large for a test."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

PACKAGES = ("chatserver.", "workers.")


@contextlib.contextmanager
def constants(values: Mapping[str, Any]) -> Iterator[None]:
    """Set each constant in `values`, also where it was imported by name."""
    importlib.import_module("chatserver.protocol.frames")  # the wire format keeps its own bounds
    for path in values:
        importlib.import_module(path.rpartition(".")[0])
    with contextlib.ExitStack() as undo:
        for path, value in values.items():
            owner, _, name = path.rpartition(".")
            old = getattr(sys.modules[owner], name)
            for key, module in list(sys.modules.items()):
                if key.startswith(PACKAGES) and vars(module).get(name) is old:
                    setattr(module, name, type(old)(value))
                    undo.callback(setattr, module, name, old)
        yield
