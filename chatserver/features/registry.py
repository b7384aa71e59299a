"""Feature registry: the installed features and the extensions that each adds to the server.

A feature is a package `chatserver.features.<name>` with a constant ``FEATURE``. The constant lists
the extensions by import path ("module:attribute"), so a process loads only the code that it runs:
a gateway loads no HTTP routes, and `chatserver --help` loads no feature code.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chatserver.features import INSTALLED

if TYPE_CHECKING:
    from chatserver.config import Settings


BACKGROUND_NICE = 10  # of workers whose results nobody waits for


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """A background worker. `run` is called with the container and the process name.

    `prepare`, if given, is awaited with the container before the worker starts; the process is not
    ready until it completes.
    """

    run: str
    help: str
    is_in_all: bool = True  # whether `chatserver worker all` includes this worker
    # Name of a setting. If it is set, `all` includes this worker even if `is_in_all` is False.
    all_if: str = ""
    check: str = ""  # called with the settings before the start; raises ConfigError
    prepare: str = ""
    nice: int = 0  # CPU priority; a process has the highest one of its workers

    def is_in_all_of(self, settings: Settings) -> bool:
        """Return whether `chatserver worker all` includes this worker."""
        if self.is_in_all or not self.all_if:
            return self.is_in_all
        return bool(operator.attrgetter(self.all_if)(settings))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The extensions that a feature adds to the server, as import paths of functions.

    - `requires`: the features that this feature needs
    - `requests`: a module that declares requests and pushes; see `chatserver.requests`
    - `routes`: functions that build HTTP routes from the container
    - `middleware`: a function that wraps the ASGI application
    - `commands`: import path and help line of each `chatserver` command
    - `dev_settings`: a function that returns the feature's settings for `chatserver dev`; it
      derives keys from a given secret
    - `dev_data`: a function that creates example data, for `chatserver dev`
    - `ports`: for the API and workers, functions that implement core interfaces, by port name (see
      `chatserver.container.feature_ports`)
    - `gateway_ports`: the same, for gateways
    - `tenant_stores`: functions that open the stores in which the feature keeps a tenant's data
      outside the tenant's partitions and object keys (a search index, a data key); see
      `docs/tenants.md`
    """

    name: str
    requires: Collection[str] = ()
    requests: str = ""
    routes: Sequence[str] = ()
    middleware: str = ""
    workers: Mapping[str, Worker] = dataclasses.field(default_factory=dict)
    commands: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    dev_settings: str = ""
    dev_data: str = ""
    ports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gateway_ports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tenant_stores: Sequence[str] = ()


@functools.cache
def list_features() -> tuple[Feature, ...]:
    """Return the installed features."""
    return tuple(
        importlib.import_module(f"chatserver.features.{name}").FEATURE for name in INSTALLED
    )


def load(path: str) -> Any:
    """Import and return the attribute at a path "module:attribute"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
