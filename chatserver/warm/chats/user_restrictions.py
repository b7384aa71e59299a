"""A user's restrictions, which Redis needs before a session starts: ended logins and blocks.

Owns no rows; `chatserver.warm.chats.logins` and `chatserver.warm.chats.moderation` define them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chatserver.domain.write_restrictions import BLOCKS_MAX
from chatserver.errors import CorruptData
from chatserver.task_groups import open_task_group
from chatserver.warm.chats import directory_items
from chatserver.warm.chats.logins import AFTER_LOGINS, LOGIN_PREFIX, LOGINS_READ_MAX
from chatserver.warm.chats.moderation import BLOCK_PREFIX, Moderation
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

# One Query reads blocks and logins. Only the user's password has a sort key between theirs.
_SPAN: Final = (BLOCK_PREFIX, AFTER_LOGINS)


class Restrictions(NamedTuple):
    """A user's restrictions. `blocks` are the users who block the user or whom the user blocks."""

    ended_logins: frozenset[str] = frozenset()
    blocks: frozenset[str] = frozenset()


class UserRestrictions:
    """Reads users' restrictions."""

    def __init__(self, client: DynamoClient, moderation: Moderation) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._moderation = moderation

    async def read(self, user: str) -> Restrictions:
        """Return a user's restrictions: all ended logins, and a limited number of blocks.

        Guarantees:
            Consistency: strong, except for blocks by others.
            Cost: two Queries.

        Raises:
            CorruptData: the user has more than `LOGINS_READ_MAX` logins.
        """
        async with open_task_group() as group:
            blockers = group.create_task(self._moderation.list_blockers(user), name="list-blockers")
            own = await self._read_own(user)
        return own._replace(blocks=own.blocks.union(blockers.result()))

    async def _read_own(self, user: str) -> Restrictions:
        span = Span(DIRECTORY, directory_items.user_key(user), between=_SPAN)
        only = (Field.SK, Field.ENDED)  # omits the password
        blocks: list[str] = []
        logins: dict[str, bool] = {}
        async with self._client.deadline():
            async for rows in self._table.iter_query(span, only=only):
                for row in rows:
                    sort: str = row[Field.SK]["S"]
                    if sort.startswith(BLOCK_PREFIX):
                        blocks.append(sort.removeprefix(BLOCK_PREFIX))
                    elif sort.startswith(LOGIN_PREFIX):
                        logins[sort.removeprefix(LOGIN_PREFIX)] = Field.ENDED in row
                if len(logins) > LOGINS_READ_MAX:
                    raise CorruptData(f"user {user}: has more than {LOGINS_READ_MAX} logins")
        ended = frozenset(login for login, is_ended in logins.items() if is_ended)
        return Restrictions(ended, frozenset(blocks[:BLOCKS_MAX]))
