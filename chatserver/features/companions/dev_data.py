"""Example companion, created when `chatserver dev` starts for the first time."""

from __future__ import annotations

import contextlib
from typing import Final

from chatserver.domain.clock import Clock
from chatserver.errors import Conflict
from chatserver.features.companions.model import VersionChanges
from chatserver.features.companions.service.companions import Companions
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.warm.dynamo.client import DynamoClient

# The example companion needs no AI model: it repeats each message word for word.
COMPANION: Final = (
    "ai-echo",
    VersionChanges(
        name="Echo",
        prompt="You are Echo. Repeat each message word for word.",
        provider="scripted",
        model="echo",
    ),
)


async def create_echo(client: DynamoClient, clock: Clock) -> None:
    """Create the example companion, unless it exists or has been deleted."""
    with contextlib.suppress(Conflict):
        await Companions(CompanionRows(client), clock).create(*COMPANION)
