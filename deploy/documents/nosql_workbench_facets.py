"""Table facets for NoSQL Workbench: one for each kind of row and for each index.

A facet shows the rows of one access pattern. Key patterns are written as in docs/data-model.md:
`<…>` stands for an id, or for digits if the text between the brackets says so.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Final

from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import (
    CHAT_SESSION,
    DIRECTORY,
    MESSAGES,
    SOCIAL,
    Index,
    TableSchema,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Facet:
    """Rows of a table whose keys match two patterns, or the rows of an index."""

    table: TableSchema
    name: str
    partition: str
    sort: str
    index: Index | None = None

    def has(self, item: Item) -> bool:
        """Return whether an item is one of this facet's rows; False for a facet of an index."""
        if self.index is not None:
            return False
        values = (next(iter(item[name].values())) for name in self.table.key.names)
        patterns = (self.partition, self.sort)
        return all(
            re.fullmatch(_to_expression(pattern), value)
            for pattern, value in zip(patterns, values, strict=True)
        )


def _to_expression(pattern: str) -> str:
    """Return the regular expression for a pattern, whose alternatives are separated by commas."""
    parts = re.split(r"(<[^>]+>|, )", pattern)
    return "".join(
        "|"
        if part == ", "
        else (r"\d+" if re.search(r"digits|number|\bto \d", part) else r"[^#]+")
        if part.startswith("<")
        else re.escape(part)
        for part in parts
    )


def _make_facets(table: TableSchema, rows: Iterable[tuple[str, str, str]]) -> Iterable[Facet]:
    return (Facet(table, name, partition, sort) for name, partition, sort in rows)


def _make_index_facets(table: TableSchema, patterns: dict[str, str]) -> Iterable[Facet]:
    for index in table.indexes:
        sort = index.key.sort or "none"
        yield Facet(
            table,
            f"Index {index.name}: {patterns[index.name]}",
            f"index partition {index.key.partition}",
            f"index sort {sort}",
            index,
        )


_MESSAGES: Final = (
    ("Messages of a chat, by time", "<chat>", "<ts, digits>"),
    ("Messages of a busy chat, in shards", "<chat>#<shard, digits>", "<ts, digits>"),
    ("Markers of removed messages", "<chat>#gone", "<ts, digits>"),
    ("Versions kept under a legal hold", "<chat>#held", "<ts, digits>"),
)
_SESSIONS: Final = (
    ("Active session", "<user>", "#ACTIVE#<companion>"),
    ("Old session", "<user>", "<companion>#OLD#<chat>"),
    ("Memory", "<user>", "<companion>#MEMORY"),
)
_SOCIAL: Final = (
    ("Info", "u#<user>", "info"),
    ("Count", "u#<user>", "count"),
    ("Follower", "u#<user>#follower", "u#<other>"),
    ("Following", "u#<user>#following", "u#<other>"),
    ("Post", "u#<user>#post", "p#<ulid>"),
    ("Likelist", "p#<ulid>#likelist", "u#<user>"),
    ("Likecount", "p#<ulid>#likecount", "count"),
    ("Favorite", "u#<user>#favorite", "posts#<ulid>, messages#<ulid>"),
    (
        "Reference of a favorite",
        "u#<user>#favorite",
        "post#<ulid>#<author>, message#<chat>#<seq, 20 digits>",
    ),
    ("Timeline", "u#<user>#timeline", "p#<ulid>#u#<author>"),
)
_DIRECTORY: Final = (
    ("User", "u#<user>", "u#<user>"),
    ("Entry of the user search", "name#<first letter>#<part>", "name#<word>#<user>"),
    ("Password", "u#<user>", "cred#<user>"),
    ("Login", "u#<user>", "device#<login>"),
    ("API key", "keys", "key#<key>"),
    ("Invitation", "u#<user>", "invitation#<chat>"),
    ("Preferences of a chat", "u#<user>", "preferences#<chat>"),
    ("Pinned chats of a user", "u#<user>", "pinned_chats#<user>"),
    ("Chat that a user left", "u#<user>", "left#<chat>"),
    ("Trust", "u#<user>", "trust#<inviter>"),
    ("Chat", "c#<chat>", "c#<chat>"),
    ("Member", "c#<chat>", "m#<user>"),
    ("Companion", "companions", "companion#<id>"),
    ("Version of a companion", "companion#<id>", "version#<id>#<number, 5 digits>"),
    ("Block", "u#<user>", "block#<other>"),
    ("Ban", "c#<chat>", "ban#<user>"),
    ("Legal hold", "c#<chat>", "on_hold"),
    ("Chats under a hold", "holds", "<chat>"),
    ("Active days of a chat", "c#<chat>", "recorded_days#<chat>"),
    ("Pinned message", "c#<chat>", "pin#<seq, 20 digits>#<chat>"),
    ("Pins of a chat", "c#<chat>", "pins#<chat>"),
    ("Report", "c#<chat>", "report#<seq, 20 digits>#<reporter>"),
    ("Report of a user", "u#<reporter>", "reported#<chat>#<seq, 20 digits>"),
    ("Open report", "reports", "<created, 20 digits>#<chat>#<seq, 20 digits>#<reporter>"),
    ("Push subscription", "u#<user>", "push#<id>"),
    ("Owner of a push subscription", "push#<id>", "push#<id>"),
    ("File", "file#<id>", "file#<id>"),
    ("File due for removal", "due#<0 to 15>", "<due, 12 digits>#<id>"),
    ("File of a user", "u#<owner>", "file#<id>"),
    ("Job", "job#<id>", "job#<id>"),
    ("Waiting job", "jobs#export, jobs#erasure", "<created, 20 digits>#<id>"),
    ("Kept export", "jobs#kept", "<expires, 12 digits>#<id>"),
    ("Exports of a user", "u#<user>", "exports#<user>"),
    ("Export of a user", "u#<user>", "export#<id>"),
    ("Memory of a companion", "c#<chat>", "summary#<chat>"),
    ("Schema", "schema", "schema"),
    ("Tenant", "tenants", "tenant#<name>"),
    ("Data key of the tenant", "encryption", "key#<version, 10 digits>"),
    ("Re-encryption", "encryption", "reencryption"),
    ("Process", "schema", "process#<name>"),
    ("Sharded chats", "shards", "shards"),
    ("Horizon of write sharding", "shards", "horizon"),
    ("Lock of migrations", "schema", "lock"),
    ("Migration", "schema", "migration#<number, 4 digits>"),
    ("Segment of a migration", "schema", "segment#<number, 4 digits>#<segment, 4 digits>"),
    ("Shard of the Stream", "stream", "shard#<stream>/<shard>"),
    ("Reader of the Stream", "stream", "reader#<name>"),
    ("Uploads of a user", "u#<user>", "uploads#<user>"),
    ("Like of a user", "u#<user>", "liked#<ulid>#<author>"),
    ("Post in fan-out", "fanout#<0 to 7>", "<ulid>#post#<author>"),
    ("Likes of a deleted post", "fanout#<0 to 7>", "<ulid>#gone#<author>"),
    ("Author merged on read", "merged", "merged#<author>"),
    ("Archive of a chat", "a#<chat>", "a#<chat>"),
    ("Segment", "a#<chat>", "s#<last, 20 digits>#<chat>"),
    ("Record of an object", "a#<chat>", "x#<first, 20 digits>#<last, 20 digits>#<tag>"),
    ("Restored range", "a#<chat>", "r#<first, 20 digits>#<last, 20 digits>"),
    ("Chat with restored ranges", "a#restored", "a#restored#<chat>"),
    ("Chat with late changes", "a#late", "a#late#<chat>"),
    ("Archive position of a user", "u#<user>", "archive#<user>"),
    ("Archived segments of a user", "u#<user>", "archived#<chat>#<seq, 20 digits>"),
    ("Exported range", "x#<chat>", "p#<first, 20 digits>#<chat>"),
)

FACETS: Final = (
    *_make_facets(MESSAGES, _MESSAGES),
    *_make_index_facets(
        MESSAGES,
        {
            "sender": "messages that a user sent, by time",
            "receiver": "direct messages that a user received, by time",
            "status": "active messages of a chat, by time",
            "files": "messages of a chat with files, by time",
        },
    ),
    *_make_facets(CHAT_SESSION, _SESSIONS),
    *_make_index_facets(CHAT_SESSION, {"GSI1_chat": "the session of a chat"}),
    *_make_facets(SOCIAL, _SOCIAL),
    *_make_facets(DIRECTORY, _DIRECTORY),
    *_make_index_facets(
        DIRECTORY, {"by_member": "the chats of a user (m#<user>), and the reverse"}
    ),
)


def find_facet(table: TableSchema, item: Item) -> Facet | None:
    return next((facet for facet in FACETS if facet.table is table and facet.has(item)), None)
