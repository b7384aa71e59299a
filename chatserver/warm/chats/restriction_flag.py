"""Flag on users who may have restrictions: ended logins, or blocks in either direction.

In a new user's item, `restricted` is false. It is set to true before the user's first restriction
is written, and is never reset. While it is false, loading the user needs no Queries for
restrictions. Items written by older releases lack the attribute; loading their users always needs
the Queries.
"""

from __future__ import annotations

from chatserver.task_groups import open_task_group
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.tables import DirectoryField as Field


async def mark_restricted(table: Table, *users: str) -> None:
    """Set the flag `restricted` of users. Call this before writing a restriction.

    Idempotent; ignores unknown users.

    Raises:
        Unavailable: the flag of some users may not have been set.
    """
    # If the user or the attribute does not exist, the condition is false too.
    is_unmarked = Attr(Field.RESTRICTED) == False  # noqa: E712  # compared by DynamoDB
    async with open_task_group() as group:
        for user in users:
            key = (user_key(user), user_key(user))
            update = table.update(key, {Field.RESTRICTED: True}, if_=is_unmarked)
            group.create_task(try_write(update), name="mark-restricted")
