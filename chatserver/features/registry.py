"""Registration of features: what each adds to the server, and which are installed.

A feature is a package `chatserver.features.<name>` with a constant ``FEATURE``. It names what it
adds by import path ("module:attribute"), so that a process loads only what it runs: a gateway loads
no HTTP routes, and `chatserver --help` loads no feature code.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from chatserver.features import INSTALLED


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """A background worker. `run` is called with the container and the name of the process."""

    run: str
    help: str
    is_in_all: bool = True  # False: `chatserver worker all` does not include it
    check: str = ""  # called with the settings before the start; raises ConfigError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The parts that a feature adds to the server.

    `requires`: features that this one builds on. `routes`: functions that build HTTP routes from
    the container. `middleware`: a function that wraps the ASGI application. `commands`: import path
    and help line of each command of `chatserver`. `sample_items`: a function that returns example
    items of a table, for the generated documents. `dev_settings` and `dev_data`: functions for
    `chatserver dev`, which return settings for a secret, and store what a developer starts with.

    `ports` and `gateway_ports` provide dependencies of the core, by the names of the ports
    (`chatserver.container.ports`): import paths of functions that take the container of the API and
    the workers, or that of a gateway.
    """

    name: str
    requires: Collection[str] = ()
    routes: Sequence[str] = ()
    middleware: str = ""
    workers: Mapping[str, Worker] = dataclasses.field(default_factory=dict)
    commands: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    sample_items: str = ""
    dev_settings: str = ""
    dev_data: str = ""
    ports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gateway_ports: Mapping[str, str] = dataclasses.field(default_factory=dict)


@functools.cache
def list_features() -> tuple[Feature, ...]:
    """Return the installed features."""
    return tuple(
        importlib.import_module(f"chatserver.features.{name}").FEATURE for name in INSTALLED
    )


def load(path: str) -> Any:
    """Import the attribute that a path "module:attribute" names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
