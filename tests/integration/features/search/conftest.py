"""Fixtures of the search tests: one stack per engine, with a running indexer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.features.search.support import (
    ENGINES,
    NewPerson,
    SearchStack,
    open_persons,
    open_search_stack,
)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=ENGINES)
async def search_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SearchStack]:
    """A stack with a search index and a running indexer."""
    folder = tmp_path_factory.mktemp(f"search-{request.param}")
    async with open_search_stack(folder, request.param) as made:
        made.start_indexer()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def new_person(search_stack: SearchStack) -> AsyncIterator[NewPerson]:
    async with open_persons(search_stack) as make:
        yield make
