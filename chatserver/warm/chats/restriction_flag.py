"""Flag on users who may have restrictions: ended logins, or blocks in either direction.

In a new user's item, `restricted` is false. It is set to true before the user's first restriction
is written, and is never reset. While it is false, loading the user needs no Queries for
restrictions. Items written by older releases lack the attribute; loading their users always needs
the Queries.
"""

from __future__ import annotations

import asyncio
import contextlib

from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.schema.tables import DirectoryField as Field


async def mark_restricted(client: DynamoClient, table: str, *users: str) -> None:
    """Set the flag `restricted` of users. Call this before writing a restriction.

    Idempotent; ignores unknown users.

    Raises:
        Unavailable: the flag of some users may not have been set.
    """
    # Await all before raising the first error, so that no task is left running.
    marks = [_mark(client, table, user) for user in users]
    for outcome in await asyncio.gather(*marks, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _mark(client: DynamoClient, table: str, user: str) -> None:
    key = directory_items.user_key(user)
    request = {
        "TableName": table,
        "Key": directory_items.row_key(key, key),
        "UpdateExpression": "SET #restricted = :true",
        # If the user or the attribute does not exist, the condition is false too.
        "ConditionExpression": "#restricted = :false",
        "ExpressionAttributeNames": {"#restricted": Field.RESTRICTED},
        "ExpressionAttributeValues": {":true": {"BOOL": True}, ":false": {"BOOL": False}},
    }
    with contextlib.suppress(ConditionFailed):
        await client.call("update_item", request)
