"""Fixtures of the long body tests: one set of stores for a run, a chat for each test.

Import as a plugin: ``pytest_plugins = ["tests.integration.warm.messages.long_bodies_fixtures"]``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from chatserver.domain.ids import ChatId
from chatserver.warm.messages import long_bodies
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.messages.long_bodies_support import INLINE_MAX, LongBodyWorld
from tests.integration.warm.support import settings_for
from tests.integration.workers.archive.support import World, crash, open_world
from tests.support.constants import constants
from tests.support.servers.processes import open_redis


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def long_body_stores(
    tmp_path_factory: pytest.TempPathFactory, dynamodb: str, s3: str
) -> AsyncIterator[World]:
    """The stores of the test run, with a low limit of inline bodies."""
    warm = settings_for(dynamodb, body_inline_bytes_max=INLINE_MAX)
    async with contextlib.AsyncExitStack() as stack:
        url = stack.enter_context(open_redis(tmp_path_factory.mktemp("bodies")))
        with constants({"chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": 20}):
            made = await stack.enter_async_context(open_world(url, warm, cold_settings(s3)))
            assert made.container.long_bodies  # created while the constant has this value
        yield made


@pytest.fixture
def world(long_body_stores: World) -> LongBodyWorld:
    """The stores, with a chat that no other test uses."""
    made = {f.name: getattr(long_body_stores, f.name) for f in dataclasses.fields(long_body_stores)}
    return LongBodyWorld(**{**made, "chat": ChatId(f"d-{secrets.token_hex(8)}")})


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of failpoints at which the worker crashes once; tests append to this list."""
    failpoints: list[str] = []

    def failpoint(name: str) -> None:
        if name in failpoints:
            failpoints.remove(name)
            crash()

    monkeypatch.setattr(long_bodies, "failpoint", failpoint)
    yield failpoints
    assert not failpoints, f"failpoints {failpoints} were not reached"
