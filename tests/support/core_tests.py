"""Checks of a copy without a feature: `python -m tests.support.core_tests FOLDER...`.

None of the remaining modules may need the feature: all are imported, and the containers, the ports
and the routes are built without servers. Then the core tests in the folders, if any, run.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import re
import sys
from pathlib import Path

from tests.support import pure_python  # noqa: F401  # before chatserver

# isort: split
import pytest

import chatserver
import workers
from chatserver.api.app import create_litestar
from chatserver.config import Auth, Settings
from chatserver.container import feature_ports, storage_feature_ports
from chatserver.container.core import CoreContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import GatewayId
from chatserver.features.registry import list_features, load
from chatserver.gateway.process.wiring import GatewayProcess
from chatserver.hot.redis.factory import make_hot
from tests.support.apiparts import open_offline_container


def import_all() -> None:
    """Import all modules, and everything that features register by path."""
    for package in (chatserver, workers):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "search.engines.lance" not in found.name:  # imports LanceDB, which takes two seconds
                importlib.import_module(found.name)
    for path in re.findall(r"'((?:chatserver|workers)[\w.]+:\w+)'", repr(list_features())):
        load(path)


async def build_containers() -> None:
    """Build the containers of all processes, with their ports, and the routes."""
    settings = Settings(auth=Auth.model_validate({"secret": "0" * 32}))
    async with open_offline_container(settings) as storage:
        create_litestar(settings, storage.clock, storage)
        get_ports(storage, vars(feature_ports) | vars(storage_feature_ports))
    gateway = GatewayProcess(
        settings=settings,
        clock=SystemClock(),
        hot=make_hot(settings.redis),
        gateway=GatewayId("offline"),
    )
    get_ports(gateway, vars(feature_ports))


def get_ports(container: CoreContainer, names: dict[str, object]) -> None:
    """Get each port of a container."""
    for port in names.values():
        if isinstance(port, feature_ports.Port):
            container.get_port(port)


if __name__ == "__main__":
    assert Path(chatserver.__file__).is_relative_to(os.environ["PYTHONPATH"])
    import_all()
    asyncio.run(build_containers())
    sys.exit(pytest.main(["-q", "-n0", *sys.argv[1:]]) if sys.argv[1:] else 0)
