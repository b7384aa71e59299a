"""Example social graph items, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.features.social.model import Info, Post, PostId, PostRef
from chatserver.features.social.tables import FanoutField
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.fanouts import MERGED_ITEM, Merged, job_key
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, SOCIAL, TableSchema
from chatserver.warm.schema.tables import SocialField as Field

_MS: Final = 1_795_000_000_000
_POST: Final = Post(
    id=PostId("01KAJ4Q7R8M2E5S9T0B3C6D8FH"),
    author="alice",
    content="The beach is open",
    created_ms=_MS,
    image="f2",
    edited_ms=_MS + 60_000,
)
_SECOND: Final = Post(
    PostId("01KAJ5W3N0TBJ8QW6X1V7ZC2YD"), "alice", "Low tide at six", _MS + 90_000
)
_OLD: Final = PostId("01KAJ3A0M5S7Q2W4E6R8T0Y1UP")
_SAVED: Final = "01KAJ6B9D3F5G7H1J2K4M6N8PQ"


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return an example of each kind of item in a table."""
    if table is SOCIAL:
        return [*_profiles(), *_edges(), *_posts(), *_favorites()]
    if table is DIRECTORY:
        ref = PostRef(_POST.id, "alice")
        created = {FanoutField.CREATED: {"N": str(_MS)}}
        return [
            row_key(user_key("bob"), f"{social.LIKED_PREFIX}{ref.post}#{ref.author}"),
            row_key(*job_key("post", ref)) | created | {FanoutField.CHECKPOINT: {"S": "u#bob"}},
            row_key(*job_key("gone", PostRef(_OLD, "alice"))) | created,
            MERGED_ITEM.encode(Merged(_POST.id, _SECOND.id), author="alice"),
        ]
    return []


def _profiles() -> Iterable[Item]:
    yield social.INFO_ITEM.encode(Info("alice", "Alice", "Lifeguard", "f3"))
    yield social.INFO_ITEM.encode(Info("bob", "Bob"))
    for user, counts in (("alice", (2, 1, 2)), ("bob", (1, 1, 0))):
        names = (Field.FOLLOWERS, Field.FOLLOWING, Field.POSTS)
        numbers = {name: {"N": str(n)} for name, n in zip(names, counts, strict=True)}
        key = social.row_key(social.user_key(user), social.COUNT)
        yield key | numbers | {Field.BATCH: {"S": "1795000000000-0"}}


def _edges() -> Iterable[Item]:
    for follower, followed in (("bob", "alice"), ("eve", "alice"), ("alice", "bob")):
        since = {Field.SINCE: {"N": str(_MS)}}
        yield social.row_key(social.follower_key(followed), social.user_key(follower)) | since
        yield social.row_key(social.following_key(follower), social.user_key(followed)) | since


def _posts() -> Iterable[Item]:
    for post in (_POST, _SECOND):
        yield social.POST.encode(post)
        likes = 2 if post is _POST else 0
        count = {Field.N: {"N": str(likes)}, Field.BATCH: {"S": "1795000000000-0"}}
        yield social.row_key(social.likecount_key(post.id), social.COUNT) | count
        for reader in ("bob", "eve"):
            key = social.row_key(
                social.timeline_key(reader), social.entry_key(PostRef(post.id, post.author))
            )
            yield key | {Field.TTL: {"N": str(_MS // 1000 + 30 * 86_400)}}
    for user in ("bob", "eve"):
        key = social.row_key(social.likelist_key(_POST.id), social.user_key(user))
        yield key | {Field.AT: {"N": str(_MS + 120_000)}}


def _favorites() -> Iterable[Item]:
    partition = social.favorites_key("bob")
    for kind, ref in (
        ("posts", f"post#{_POST.id}#alice"),
        ("messages", f"message#g-team#{5:020d}"),
    ):
        position = f"{kind}#{_SAVED}"
        yield social.row_key(partition, position) | {Field.REF: {"S": ref}}
        yield social.row_key(partition, ref) | {Field.PLACE: {"S": position}}
