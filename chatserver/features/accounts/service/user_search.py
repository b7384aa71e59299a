"""User search by name or id.

It finds only users who made themselves discoverable. It omits banned users, and users who block the
caller or are blocked by the caller.
"""

from __future__ import annotations

from typing import Final

from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.features.accounts.search_words import WORDS_MAX, is_match, split_words
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.chats.directory_items import User

RESULTS_MAX: Final = 20
# More than `RESULTS_MAX` users are checked, because some could be blocked or banned.
CHECKED_MAX: Final = 40


class UserSearch:
    def __init__(self, entries: SearchEntries, rows: AccountRows, blocks: BlockPolicy) -> None:
        self._entries = entries
        self._rows = rows
        self._blocks = blocks

    async def find(self, viewer: UserId, text: str, limit: int) -> list[User]:
        """Return users whose name or id matches `text`, sorted by the matching word.

        Each word of `text` must be a prefix of a word of the name or id. If very many names begin
        with the longest word of `text`, some are not found (`SearchEntries.find`). A changed name
        is found after about a second.
        Cost: 4 eventually consistent Queries and 2 BatchGetItem calls.

        Raises:
            BadRequest: the text has no letter or digit.
        """
        prefixes = split_words(text)[:WORDS_MAX]
        if not prefixes:
            raise BadRequest("q: must contain a letter or digit")
        entries = await self._entries.find(prefixes)
        users = [user for user in dict.fromkeys(entry.user for entry in entries) if user != viewer]
        users = users[:CHECKED_MAX]
        if not users:
            return []
        blocked = await self._blocks.find_blocked(viewer, [UserId(user) for user in users])
        records = {record.user: record for record in await self._rows.list_users(users)}
        matches = [records[user] for user in users if user in records and user not in blocked]
        return [record for record in matches if _may_be_found(record, prefixes)][:limit]


def _may_be_found(record: User, prefixes: list[str]) -> bool:
    is_active = record.erased_ms is None and record.banned_ms is None
    return is_active and is_match(prefixes, record.words)
