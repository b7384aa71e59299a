"""Initial data of `chatserver dev`: tables, bucket, demo users and feature data.

A user can receive messages only if the `directory` table has an item for them, so demo users are
created before they log in.
"""

from __future__ import annotations

import asyncio

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Settings, load_settings
from chatserver.dev.demo_users import DEMO_USERS
from chatserver.domain.clock import Clock, SystemClock
from chatserver.features.registry import list_features, load
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables


async def seed(settings: Settings, clock: Clock) -> list[str]:
    """Create missing resources; return a line for each one created."""
    async with open_dynamodb(settings.warm) as dynamodb:
        client = dynamodb.for_feature("operations")
        changes = await apply_tables(client, settings.warm)
        directory = Directory(client)
        for user in DEMO_USERS:
            await directory.put_user_if_absent(user, user.capitalize(), clock.time())
        for feature in list_features():
            if feature.dev_data:
                await load(feature.dev_data)(client, clock)
    lines = [
        f"{change.action} {change.table}: {change.what}"
        for change in changes
        if change.action != "kept"
    ]
    async with open_s3(settings.cold) as store:
        rules = await apply_bucket(store, settings.cold)
    lines += [
        f"{rule.action} {store.bucket}: {rule.what}" for rule in rules if rule.action != "kept"
    ]
    return lines


def main() -> None:
    """Seed with the settings from the environment."""
    for line in asyncio.run(seed(load_settings(), SystemClock())):
        print(line)  # noqa: T201  this is a program


if __name__ == "__main__":
    main()
