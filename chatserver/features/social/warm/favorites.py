"""Favorites in the `social` table; see `chatserver.features.social.warm.social_items`.

A favorite is two items in the user's own partition, written and deleted in one transaction. The
`favorite` item sorts by the time of saving and refers to the post or message. The `reference` item
maps the post or message to the favorite, so that nothing is saved twice.

Each save counts the user's favorites, which costs about one read unit per 40 favorites. Concurrent
saves by one user may exceed the maximum slightly.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import CorruptData, TooLarge
from chatserver.features.social.model import FAVORITES_MAX, PostId, PostRef, get_created_ms
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.task_groups import map_concurrently
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Key, try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

T = TypeVar("T")
Kind = Literal["post", "message"]
REMOVED_PAGE: Final = 100
REMOVALS_IN_FLIGHT_MAX: Final = 8


class MessageRef(NamedTuple):
    """Reference to a message: its chat and seq."""

    chat: ChatId
    seq: Seq


class Favorite(NamedTuple):
    """A saved post or message, and the time at which it was saved (ms)."""

    ref: PostRef | MessageRef
    saved_ms: int


Load = Callable[[Sequence[Favorite]], Awaitable[Sequence[T | None]]]


class SocialFavorites:
    """Reads and writes favorites."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def save(self, user: str, ref: PostRef | MessageRef, position: PostId) -> bool:
        """Add a favorite; return False if it already exists.

        `position` is a new ULID, which becomes part of the sort key.

        Guarantees:
            Atomic; a retry changes nothing.
            Cost: a transaction of two items that no other user writes, and a count query.

        Raises:
            TooLarge: the user has the maximum number of favorites.
        """
        partition, sort = social.favorites_key(user), _encode_ref(ref)
        if await self._table.find((partition, sort)) is not None:
            return False
        prefix = _build_prefix("post") if isinstance(ref, PostRef) else _build_prefix("message")
        saved = Span(SOCIAL, partition, prefix=prefix)
        if await self._table.count(saved) >= FAVORITES_MAX:
            raise TooLarge(f"favorites: at most {FAVORITES_MAX:,} are allowed; remove some")
        actions = [
            self._table.create_action((partition, sort), {Field.PLACE: prefix + position}),
            self._table.create_action((partition, prefix + position), {Field.REF: sort}),
        ]
        return await try_write(self._table.transact(actions))

    async def remove(self, user: str, ref: PostRef | MessageRef) -> bool:
        """Remove a favorite; return False if there was none. Atomic; a retry changes nothing."""
        partition, sort = social.favorites_key(user), _encode_ref(ref)
        link = await self._table.find((partition, sort))
        if link is None:
            return False
        keys = (sort, link[Field.PLACE]["S"])
        actions = [self._table.remove_action((partition, key)) for key in keys]
        return await try_write(self._table.transact(actions))

    async def find_saved(self, user: str, refs: Collection[PostRef]) -> set[PostRef]:
        """Return which of `refs` are favorites. Strongly consistent; one call per 100 posts."""
        partition = social.favorites_key(user)
        keys: list[Key] = [(partition, sort) for sort in sorted(set(map(_encode_ref, refs)))]
        items = await self._table.get_items(keys)
        sorts = {item[Field.SK]["S"] for item in items}
        return {ref for ref in refs if _encode_ref(ref) in sorts}

    async def list_page(
        self, user: str, kind: Kind, start: Token | None, limit: int, load: Load[T]
    ) -> QueryPage[T]:
        """Return a page of favorites of one kind, converted by `load`, most recently saved first.

        Favorites for which `load` returns None are omitted. For guarantees, see `read_page`.
        """
        span = Span(SOCIAL, social.favorites_key(user), prefix=_build_prefix(kind))
        query = self._table.build_query(span, is_newest_first=True)

        async def load_rows(rows: list[Item]) -> Sequence[T | None]:
            return await load([_decode(row) for row in rows])

        client = self._table.client
        return await read_page(client, span, query, load_rows, limit=limit, start=start)

    async def iter_all(self, user: str) -> AsyncIterator[list[Favorite]]:
        """Yield all favorites, page by page. Strongly consistent."""
        for kind in ("post", "message"):
            span = Span(SOCIAL, social.favorites_key(user), prefix=_build_prefix(kind))
            async for rows in self._table.iter_query(span, limit=REMOVED_PAGE):
                if rows:
                    yield [_decode(row) for row in rows]

    async def remove_all(self, user: str) -> int:
        """Remove a user's favorites; return how many there were. Idempotent."""
        removed = 0
        async for page in self.iter_all(user):
            await self.remove_many(user, [favorite.ref for favorite in page])
            removed += len(page)
        return removed

    async def remove_many(self, user: str, refs: Sequence[PostRef | MessageRef]) -> None:
        """Remove several favorites. Idempotent."""
        await map_concurrently(
            functools.partial(self.remove, user),
            refs,
            in_flight_max=REMOVALS_IN_FLIGHT_MAX,
            name="remove-favorite",
        )


def parse_ref(text: str) -> PostRef | MessageRef:
    """Parse a reference to a post or message. Raises CorruptData."""
    match text.split("#"):
        case ["post", post, author]:
            return PostRef(PostId(post), author)
        case ["message", chat, seq] if seq.isdecimal():
            return MessageRef(ChatId(chat), Seq(int(seq)))
    raise CorruptData(f"table social: {text} is not a favorite's reference")


def _encode_ref(ref: PostRef | MessageRef) -> str:
    if isinstance(ref, PostRef):
        return f"post#{ref.post}#{ref.author}"
    return f"message#{ref.chat}#{ref.seq:020d}"


def _build_prefix(kind: str) -> str:
    return f"{kind}s#"


def _decode(item: Item) -> Favorite:
    position = PostId(item[Field.SK]["S"].rpartition("#")[2])
    return Favorite(parse_ref(item[Field.REF]["S"]), get_created_ms(position))
