"""What `chatserver dev` needs before it starts: the tables, the bucket, demo users, a companion.

Run as a program of its own, so that the supervisor loads no AWS library. Others can write to a
user only once the directory knows him, so demo users are there before they first log in.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Settings, load_settings
from chatserver.dev.plan import DEMO_USERS
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.companions import Changes
from chatserver.errors import Conflict
from chatserver.service.companions import Companions
from chatserver.warm.client import open_dynamodb
from chatserver.warm.companions import CompanionRows
from chatserver.warm.directory import Directory
from chatserver.warm.provisioning import apply_tables

# Needs no model and no account anywhere: it says again what it was told, word by word.
COMPANION: Final = (
    "ai-echo",
    Changes(
        name="Echo",
        prompt="You are Echo, and say again what you are told.",
        provider="scripted",
        model="echo",
    ),
)


async def seed(settings: Settings, clock: Clock) -> list[str]:
    """Create what is missing, and return a line for everything that was created."""
    async with open_dynamodb(settings.warm) as dynamodb:
        client = dynamodb.for_feature("operations")
        changes = await apply_tables(client, settings.warm)
        directory = Directory(client, settings.warm)
        for user in DEMO_USERS:
            await directory.put_user_if_absent(user, user.capitalize(), clock.time())
        # Deleted or changed by whoever develops, it stays so.
        with contextlib.suppress(Conflict):
            await Companions(CompanionRows(client, settings.warm), clock).create(*COMPANION)
    lines = [f"{one.action} {one.table}: {one.what}" for one in changes if one.action != "kept"]
    async with open_s3(settings.cold) as store:
        found = await apply_bucket(store, settings.cold)
    lines += [f"{one.action} {store.bucket}: {one.what}" for one in found if one.action != "kept"]
    return lines


def main() -> None:
    """Seed by the settings of the environment."""
    for line in asyncio.run(seed(load_settings(), SystemClock())):
        print(line)  # noqa: T201  this is a program


if __name__ == "__main__":
    main()
