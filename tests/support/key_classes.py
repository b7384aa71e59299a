"""The classes that build Redis keys: those of the core and of all features."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import chatserver.features
from chatserver.hot.redis.keys import Keys


def iter_key_builders() -> Iterator[tuple[type[Keys], str, inspect.Signature]]:
    """Yield each method that builds keys: its class, its name and its signature without `self`."""
    for feature in chatserver.features.INSTALLED:
        package = import_module(f"chatserver.features.{feature}")
        if any(module.name == "keys" for module in pkgutil.iter_modules(package.__path__)):
            import_module(f"{package.__name__}.keys")
    for kind in (Keys, *Keys.__subclasses__()):
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and name not in ("__init__", "get_partition"):
                _, *parameters = inspect.signature(method).parameters.values()
                yield kind, name, inspect.Signature(parameters)
