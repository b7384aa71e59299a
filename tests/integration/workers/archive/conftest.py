"""Fixture of the archive tests."""

from __future__ import annotations

import pytest

from tests.integration.workers.archive.support import World


@pytest.fixture
def world(archive_world: World) -> World:
    """The stores with a chat that no other test uses."""
    return archive_world
