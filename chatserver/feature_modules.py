"""Modules that installed features have for the core, found by their names.

The core imports no feature. What a feature declares for the core is in a module whose name the core
looks for, so the core can read it without a list of features.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def iter_feature_modules(name: str) -> Iterator[ModuleType]:
    """Yield the module of this name of each installed feature that has one."""
    for feature in import_module("chatserver.features").INSTALLED:
        path = f"chatserver.features.{feature}.{name}"
        if find_spec(path) is not None:
            yield import_module(path)
