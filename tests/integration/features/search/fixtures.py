"""Fixtures of the tests of search: one stack per engine for a run, with a running indexer.

Import as a plugin: ``pytest_plugins = ["tests.integration.features.search.fixtures"]``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.features.search.support import Library, NewPerson, open_library, open_people

ENGINES = ("sqlite", "lancedb")


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=ENGINES)
async def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Library]:
    """The stack."""
    folder = tmp_path_factory.mktemp(f"library-{request.param}")
    async with open_library(folder, request.param) as made:
        made.start_indexer()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def new_person(library: Library) -> AsyncIterator[NewPerson]:
    """Makes people whom no other test knows."""
    async with open_people(library) as make:
        yield make
