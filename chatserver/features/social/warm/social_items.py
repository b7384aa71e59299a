"""Items of the `social` table: keys, encoding and shared writes.

| item      | `PK`                 | `SK`                   | attributes                         |
|-----------|----------------------|------------------------|------------------------------------|
| info      | `u#<user>`           | `info`                 | `name? about? avatar?`             |
| count     | `u#<user>`           | `count`                | `follower# following# post# batch?`|
| follower  | `u#<user>#follower`  | `u#<other>`            | `since`                            |
| following | `u#<user>#following` | `u#<other>`            | `since`                            |
| post      | `u#<user>#post`      | `p#<ulid>`             | `content created image? edited?`   |
| likelist  | `p#<ulid>#likelist`  | `u#<user>`             | `at`                               |
| likecount | `p#<ulid>#likecount` | `count`                | `n batch?`                         |
| line      | `u#<user>#timeline`  | `p#<ulid>#u#<author>`  | `ttl`                              |
| favorite  | `u#<user>#favorite`  | `posts#<ulid>`,        | `ref`: sort key of the reference   |
|           |                      | `messages#<ulid>`      |                                    |
| reference | `u#<user>#favorite`  | `post#<ulid>#<author>`,| `place`: sort key of the favorite  |
|           |                      | `message#<chat>#<seq>` |                                    |

Only the modules in this package write to the table.

Invariants: a follow has a `follower` and a `following` item, or neither. `post#` always equals the
number of posts.
The counts `follower#`, `following#` and `n` are updated with a delay; see `counts`. A `likecount`
item exists as long as its post.
"""

from __future__ import annotations

from typing import Final

from chatserver.domain.ids import new_id
from chatserver.errors import CorruptData
from chatserver.features.social.model import GraphEdge, Info, Post, PostId, PostRef, UserCounts
from chatserver.warm.dynamo.client import Action, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr, Attributes
from chatserver.warm.dynamo.item_attributes import format_key, get_number, get_text
from chatserver.warm.dynamo.table import Key, Table
from chatserver.warm.schema.tables import DIRECTORY, SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

INFO: Final = "info"
COUNT: Final = "count"
_USER: Final = "u#"
_POST: Final = "p#"
# Sort key prefix of the items in the `directory` table that list a user's likes; see `likes`.
LIKED_PREFIX: Final = "liked#"


# Keys


def user_key(user: str) -> str:
    """Return a user's key: partition key of profile and counts, sort key of follows and likes."""
    return f"{_USER}{user}"


def follower_key(user: str) -> str:
    return f"{_USER}{user}#follower"


def following_key(user: str) -> str:
    return f"{_USER}{user}#following"


def posts_key(user: str) -> str:
    return f"{_USER}{user}#post"


def post_key(post: PostId) -> str:
    return f"{_POST}{post}"


def likelist_key(post: PostId) -> str:
    return f"{_POST}{post}#likelist"


def likecount_key(post: PostId) -> str:
    return f"{_POST}{post}#likecount"


def timeline_key(user: str) -> str:
    return f"{_USER}{user}#timeline"


def favorites_key(user: str) -> str:
    return f"{_USER}{user}#favorite"


def entry_key(post_ref: PostRef) -> str:
    return f"{_POST}{post_ref.post}#{_USER}{post_ref.author}"


def row_key(partition: str, sort: str) -> Item:
    return {Field.PK: {"S": partition}, Field.SK: {"S": sort}}


# Rows


INFO_ITEM: Final = Codec(
    Info, "u#{user}", INFO, name=Field.NAME, about=Field.ABOUT, avatar=Field.AVATAR
)
POST: Final = Codec(
    Post,
    "u#{author}#post",
    "p#{id}",
    content=Field.CONTENT,
    created_ms=Field.CREATED,
    image=Field.IMAGE,
    edited_ms=Field.EDITED,
)
# While changes are queued, a count may be below zero.
COUNTS: Final = Codec(
    UserCounts,
    "u#{user}",
    COUNT,
    followers=StoredField(Field.FOLLOWERS, absent=0),
    following=StoredField(Field.FOLLOWING, absent=0),
    posts=StoredField(Field.POSTS, absent=0),
)
_IS_NEW: Final = Attr(Field.PK).is_absent
EXISTS: Final = Attr(Field.PK).exists


def decode_edge(item: Item) -> GraphEdge:
    return GraphEdge(item[Field.SK]["S"].removeprefix(_USER), get_number(item, Field.SINCE))


def decode_like(item: Item) -> GraphEdge:
    return GraphEdge(item[Field.SK]["S"].removeprefix(_USER), get_number(item, Field.AT))


def decode_entry(item: Item) -> PostRef:
    """Decode a timeline entry. Raises CorruptData."""
    parts = get_text(item, Field.SK).split("#")
    if len(parts) != 4:
        raise CorruptData(f"DynamoDB item {format_key(item)}: not a timeline entry")
    return PostRef(PostId(parts[1]), parts[3])


# Writes


class SocialTable(Table):
    """Table `social`, with shared actions of transactions."""

    def __init__(self, client: DynamoClient) -> None:
        super().__init__(client, SOCIAL)
        self.directory = Table(client, DIRECTORY)

    async def transact(self, actions: list[Action]) -> None:
        """Write several items atomically.

        Retries after a lost response are idempotent. If a transaction conflicts with another, it is
        retried.

        Raises:
            ConditionFailed: a condition failed; nothing was written.
            Unavailable: the items may or may not have been written.
        """
        await self.client.transact(actions, new_id())

    def create_action(self, key: Key, attributes: Attributes | None = None) -> Action:
        """Return the action that writes a new item."""
        return self.put_action(key, attributes, if_=_IS_NEW, keeps_stored=True)

    def remove_action(self, key: Key) -> Action:
        """Return the action that deletes an existing item."""
        return self.delete_action(key, if_=EXISTS)

    def check_info_action(self, user: str) -> Action:
        """Return the condition check that a user has a profile; erased users have none."""
        return self.check_action(INFO_ITEM.key(user=user), if_=EXISTS)

    def count_action(self, user: str, name: str, change: int) -> Action:
        """Return the action that adds `change` to one of a user's counts."""
        return self.update_action(COUNTS.key(user=user), {name: Add(change)})
