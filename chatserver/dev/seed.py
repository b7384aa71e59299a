"""What `chatserver dev` needs before it starts: the tables, the bucket, and the demo users.

Run as a program of its own, so that the supervisor loads no AWS library. Others can write to a
user only once the directory knows him, so demo users are there before they first log in.
"""

from __future__ import annotations

import asyncio

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Settings, load_settings
from chatserver.dev.plan import DEMO_USERS
from chatserver.domain.clock import Clock, SystemClock
from chatserver.warm.client import open_dynamodb
from chatserver.warm.directory import Directory
from chatserver.warm.provisioning import apply_tables


async def seed(settings: Settings, clock: Clock) -> list[str]:
    """Create what is missing, and return a line for everything that was created."""
    async with open_dynamodb(settings.warm) as client:
        changes = await apply_tables(client, settings.warm)
        directory = Directory(client, settings.warm)
        for user in DEMO_USERS:
            await directory.put_user_if_absent(user, user.capitalize(), clock.time())
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
