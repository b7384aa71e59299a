"""Helpers of the tests of companions and their sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from chatserver.domain.clock import SystemClock
from chatserver.features.companions.model import Companion, VersionChanges
from chatserver.features.companions.service.companions import Companions
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.stack import Stack

PROMPT = "You are Ada. The secret word is heliotrope."


@contextlib.asynccontextmanager
async def open_companions(stack: Stack) -> AsyncIterator[Companions]:
    """Open the service that manages companions, on the tables of a stack."""
    async with open_dynamodb(stack.warm) as dynamodb:
        yield Companions(CompanionRows(dynamodb), SystemClock())


@contextlib.asynccontextmanager
async def open_session_rows(stack: Stack) -> AsyncIterator[SessionRows]:
    async with open_dynamodb(stack.warm) as dynamodb:
        yield SessionRows(dynamodb)


async def make_companion(
    stack: Stack, id_: str, name: str = "Ada", model: str = "echo"
) -> Companion:
    fields = VersionChanges(name=name, prompt=PROMPT, provider="scripted", model=model)
    async with open_companions(stack) as companions:
        return await companions.create(id_, fields)
