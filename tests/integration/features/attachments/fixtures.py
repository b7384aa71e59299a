"""Fixtures of the attachment tests: one store per test run; each test has its own users.

Import as a plugin: ``pytest_plugins = ["tests.integration.features.attachments.fixtures"]``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.features.attachments.support import FileStack, cold_settings, open_file_stack
from tests.integration.warm.support import create_tables, settings_for
from tests.support.constants import constants
from tests.support.servers.processes import open_redis


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def store(
    tmp_path_factory: pytest.TempPathFactory, dynamodb: str, s3: str
) -> AsyncIterator[FileStack]:
    """A store in which a user may have three unsent files, and 20,000 bytes in all files."""
    # Other tests delete the data of the shared Redis.
    warm, cold = settings_for(dynamodb), cold_settings(s3)
    create_tables(warm)
    async with contextlib.AsyncExitStack() as stack:
        url = stack.enter_context(open_redis(tmp_path_factory.mktemp("files")))
        with constants({"chatserver.features.attachments.service.uploads.WAITING_MAX": 3}):
            made = await stack.enter_async_context(
                open_file_stack(url, warm, cold, user_bytes_max=20_000, day_bytes_max=100_000)
            )
            assert made.uploads  # the object is created while the constant has this value
        yield made
