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
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.features.accounts.search_words import is_match
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_texts
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.dynamo.paging import Span
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

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    def build_replace_actions(
        self, user: str, before: tuple[str, ...], after: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        """Return the actions that replace a user's entries; none if the words are the same."""
        if tuple(before) == after:
            return []
        actions: list[dict[str, Any]] = [
            {"Delete": {"TableName": self._table, "Key": entry_key(word, user)}}
            for word in before
            if word not in after
        ]
        actions += [
            {"Put": {"TableName": self._table, "Item": encode_entry(word, user, after)}}
            for word in after
        ]
        return actions

    async def find(self, wanted: list[str]) -> list[SearchEntry]:
        """Return the entries of users who match all of `wanted`, sorted by word.

        The query uses the longest word of `wanted` as a prefix and reads the first `READ_MAX`
        entries of each partition. Eventually consistent.
        """
        word = max(wanted, key=len)
        parts = await asyncio.gather(*(self._read(word, part, wanted) for part in range(PARTS)))
        return sorted(entry for part in parts for entry in part)

    async def _read(self, word: str, part: int, wanted: list[str]) -> list[SearchEntry]:
        span = Span(DIRECTORY, _partition(word, part), prefix=PREFIX + word)
        request = {**span.query(self._settings), "Limit": READ_MAX}
        items = (await self._client.call("query", request))["Items"]
        return [
            SearchEntry(*item[Field.SK]["S"].removeprefix(PREFIX).split("#"))
            for item in items
            if is_match(wanted, find_texts(item, Field.WORDS))
        ]

    async def remove(self, user: str) -> int:
        """Delete the entries of an erased user; return how many. Idempotent."""
        key = row_key(user_key(user), user_key(user))
        item = await find_item(self._client, self._table, key)
        words = find_texts(item or {}, Field.WORDS)
        if not words:
            return 0
        update = {
            "TableName": self._table,
            "Key": key,
            "UpdateExpression": "REMOVE #words",
            "ExpressionAttributeNames": {"#words": Field.WORDS},
        }
        actions = [*self.build_replace_actions(user, words, ()), {"Update": update}]
        await self._client.call("transact_write_items", {"TransactItems": actions})
        return len(words)


def encode_entry(word: str, user: str, words: tuple[str, ...]) -> Item:
    return entry_key(word, user) | {
        Field.WORDS: {"L": [{"S": search_word} for search_word in words]}
    }


def entry_key(word: str, user: str) -> Item:
    part = zlib.crc32(user.encode()) % PARTS
    return row_key(_partition(word, part), f"{PREFIX}{word}#{user}")


def _partition(word: str, part: int) -> str:
    return f"{PREFIX}{word[0]}#{part}"
