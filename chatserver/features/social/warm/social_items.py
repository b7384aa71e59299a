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

from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.ids import new_id
from chatserver.errors import CorruptData
from chatserver.features.social.model import Counts, GraphEdge, Info, Post, PostId, PostRef
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.dynamo.paging import Span
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


def encode_post(post: Post) -> Item:
    item = row_key(posts_key(post.author), post_key(post.id))
    item[Field.CONTENT] = {"S": post.content}
    item[Field.CREATED] = {"N": str(post.created_ms)}
    if post.image is not None:
        item[Field.IMAGE] = {"S": post.image}
    if post.edited_ms is not None:
        item[Field.EDITED] = {"N": str(post.edited_ms)}
    return item


def decode_post(item: Item) -> Post:
    """Decode a post. Raises CorruptData."""
    try:
        return Post(
            id=PostId(item[Field.SK]["S"].removeprefix(_POST)),
            author=item[Field.PK]["S"].split("#")[1],
            content=item[Field.CONTENT]["S"],
            created_ms=int(item[Field.CREATED]["N"]),
            image=_find_text(item, Field.IMAGE),
            edited_ms=int(item[Field.EDITED]["N"]) if Field.EDITED in item else None,
        )
    except (KeyError, ValueError, IndexError) as exc:
        raise _make_corrupt_error(item, "post") from exc


def decode_info(item: Item) -> Info:
    return Info(
        user=item[Field.PK]["S"].removeprefix(_USER),
        name=_find_text(item, Field.NAME),
        about=_find_text(item, Field.ABOUT),
        avatar=_find_text(item, Field.AVATAR),
    )


def decode_counts(item: Item) -> Counts:
    """Decode counts. While changes are queued, a count may be below zero."""
    return Counts(
        followers=_get_number(item, Field.FOLLOWERS),
        following=_get_number(item, Field.FOLLOWING),
        posts=_get_number(item, Field.POSTS),
    )


def decode_edge(item: Item) -> GraphEdge:
    return GraphEdge(item[Field.SK]["S"].removeprefix(_USER), _get_number(item, Field.SINCE))


def decode_like(item: Item) -> GraphEdge:
    return GraphEdge(item[Field.SK]["S"].removeprefix(_USER), _get_number(item, Field.AT))


def decode_entry(item: Item) -> PostRef:
    """Decode a timeline entry. Raises CorruptData."""
    return parse_entry(item[Field.SK]["S"])


def parse_entry(text: str) -> PostRef:
    """Parse a timeline entry from its sort key. Raises CorruptData."""
    parts = text.split("#")
    if len(parts) != 4:
        raise CorruptData(f"table social: {text} is not a timeline entry")
    return PostRef(PostId(parts[1]), parts[3])


def _find_text(item: Item, name: str) -> str | None:
    value = item.get(name, {}).get("S")
    return None if value is None else str(value)


def _get_number(item: Item, name: str) -> int:
    try:
        return int(item.get(name, {"N": "0"})["N"])
    except (KeyError, ValueError) as exc:
        raise _make_corrupt_error(item, name) from exc


def _make_corrupt_error(item: Item, what: str) -> CorruptData:
    return CorruptData(f"table social: {item.get(Field.PK)}/{item.get(Field.SK)}: invalid {what}")


# Writes


class SocialTable:
    """Shared operations on the `social` table."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self.client = client
        self.settings = settings
        self.name = SOCIAL.name_in(settings)
        self.directory = DIRECTORY.name_in(settings)

    async def transact(self, actions: list[dict[str, Any]]) -> None:
        """Write several items atomically.

        Retries after a lost response are idempotent. If a transaction conflicts with another, it is
        retried.

        Raises:
            ConditionFailed: a condition failed; nothing was written.
            Unavailable: the items may or may not have been written.
        """
        request = {"TransactItems": actions, "ClientRequestToken": new_id()}
        await self.client.call("transact_write_items", request)

    def put(self, item: Item, *, is_new: bool = True) -> dict[str, Any]:
        """Return the transaction action that writes an item, by default only if it is new."""
        put: dict[str, Any] = {"TableName": self.name, "Item": item}
        return {"Put": put | (_new_item_condition() if is_new else {})}

    def delete(self, key: Item) -> dict[str, Any]:
        """Return the transaction action that deletes an existing item."""
        present = {
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        return {"Delete": {"TableName": self.name, "Key": key, **present}}

    def check_info(self, user: str) -> dict[str, Any]:
        """Return the condition check that a user has a profile; erased users have none."""
        return {
            "ConditionCheck": {
                "TableName": self.name,
                "Key": row_key(user_key(user), INFO),
                "ConditionExpression": "attribute_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": Field.PK},
            }
        }

    def count(self, user: str, name: str, change: int) -> dict[str, Any]:
        """Return the transaction action that adds `change` to one of a user's counts."""
        return {
            "Update": {
                "TableName": self.name,
                "Key": row_key(user_key(user), COUNT),
                "UpdateExpression": "ADD #count :change",
                "ExpressionAttributeNames": {"#count": name},
                "ExpressionAttributeValues": {":change": {"N": str(change)}},
            }
        }

    async def count_rows(self, partition: str, prefix: str | None = None) -> int:
        """Count the items in a partition. Strongly consistent; reads all of them."""
        span = Span(SOCIAL, partition, prefix=prefix)
        request: dict[str, Any] = {**span.query(self.settings), "ConsistentRead": True}
        request["Select"] = "COUNT"
        count = 0
        while True:
            response = await self.client.call("query", request)
            count += int(response["Count"])
            if (last := response.get("LastEvaluatedKey")) is None:
                return count
            request["ExclusiveStartKey"] = last

    async def find(self, partition: str, sort: str) -> Item | None:
        """Return an item. Strongly consistent."""
        key = row_key(partition, sort)
        return await find_item(self.client, self.name, key)


def _new_item_condition() -> dict[str, Any]:
    return {
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": Field.PK},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
