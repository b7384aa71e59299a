"""The classes that build Redis keys: those of the core and of all features."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from chatserver.feature_modules import iter_feature_modules
from chatserver.hot.redis.keys import Keys

_NO_BUILDERS = ("__init__", "get_partition", "group_by_partition", "of")


def iter_key_builders() -> Iterator[tuple[type[Keys], str, inspect.Signature]]:
    """Yield each method that builds keys: its class, its name and its signature without `self`."""
    list(iter_feature_modules("keys"))  # imports them
    for kind in (Keys, *Keys.__subclasses__()):
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and name not in _NO_BUILDERS:
                _, *parameters = inspect.signature(method).parameters.values()
                yield kind, name, inspect.Signature(parameters)
