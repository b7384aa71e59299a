"""User search entries in the DynamoDB table `directory`.

| record | `PK`                   | `SK`                 | attributes |
|--------|------------------------|----------------------|------------|
| entry  | `name#<letter>#<part>` | `name#<word>#<user>` | `words`    |

A discoverable user has an entry for each search word (`chatserver.features.accounts.search_words`).
`<letter>` is the word's first letter; `<part>` divides the users, so that a frequent letter does
not become a hot partition. `words` has all search words of the user. The user's own item has the
same `words` and is written in the same transaction, so the entries always match the user's name.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final, NamedTuple

from chatserver.features.accounts.search_words import is_match
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import Action, DynamoClient, Item
from chatserver.warm.dynamo.conditions import encode_item
from chatserver.warm.dynamo.item_attributes import find_texts
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

PREFIX: Final = "name#"
PARTS: Final = 4
READ_MAX: Final = 200  # maximum entries that a search reads from each of the `PARTS`


class SearchEntry(NamedTuple):
    """A user and one of the user's search words."""

    word: str
    user: str


class SearchEntries:
    """Reads search entries, and builds the transaction actions that change them."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    def build_replace_actions(
        self, user: str, before: tuple[str, ...], after: tuple[str, ...]
    ) -> list[Action]:
        """Return the actions that replace a user's entries; none if the words are the same."""
        if tuple(before) == after:
            return []
        removed = [word for word in before if word not in after]
        return [
            *(self._table.delete_action(entry_key(word, user)) for word in removed),
            *(self._table.put_action(encode_entry(word, user, after)) for word in after),
        ]

    async def find(self, prefixes: list[str]) -> list[SearchEntry]:
        """Return the entries of users who match all of `prefixes`, sorted by word.

        The query uses the longest word of `prefixes` as a prefix and reads the first `READ_MAX`
        entries of each partition. Eventually consistent.
        """
        word = max(prefixes, key=len)
        parts = await asyncio.gather(*(self._read(word, part, prefixes) for part in range(PARTS)))
        return sorted(entry for part in parts for entry in part)

    async def _read(self, word: str, part: int, prefixes: list[str]) -> list[SearchEntry]:
        span = Span(DIRECTORY, _partition(word, part), prefix=PREFIX + word)
        items = await self._table.query(span, limit=READ_MAX, is_consistent=False)
        return [
            SearchEntry(*item[Field.SK]["S"].removeprefix(PREFIX).split("#"))
            for item in items
            if is_match(prefixes, find_texts(item, Field.WORDS))
        ]

    async def remove(self, user: str) -> int:
        """Delete the entries of an erased user; return how many. Idempotent."""
        key = user_key(user), user_key(user)
        item = await self._table.find(key)
        words = find_texts(item or {}, Field.WORDS)
        if not words:
            return 0
        update = self._table.update_action(key, {Field.WORDS: None})
        await self._table.client.transact([*self.build_replace_actions(user, words, ()), update])
        return len(words)


def encode_entry(word: str, user: str, words: tuple[str, ...]) -> Item:
    return entry_key(word, user) | encode_item({Field.WORDS: words})


def entry_key(word: str, user: str) -> Item:
    part = zlib.crc32(user.encode()) % PARTS
    return row_key(_partition(word, part), f"{PREFIX}{word}#{user}")


def _partition(word: str, part: int) -> str:
    return f"{PREFIX}{word[0]}#{part}"
