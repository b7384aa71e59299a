"""Favorites in DynamoDB: rows, repeated requests and limit."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import TooLarge
from chatserver.features.social.model import PostRef
from chatserver.features.social.warm.favorites import MessageRef
from tests.integration.features.social.support import IDS, social_rows_of
from tests.integration.warm.support import Tables


async def test_favorite_is_stored_once_in_two_rows(tables: Tables) -> None:
    """This holds after concurrent saves and a lost response. A removal deletes both rows."""
    rows = social_rows_of(tables)
    post, place = PostRef(IDS.next(), "alice"), IDS.next()
    message = MessageRef(ChatId("d-x"), Seq(17))
    tables.faults.drop_responses("TransactWriteItems", 1)

    assert await rows.favorites.save("bob", post, place)
    saved = await asyncio.gather(*(rows.favorites.save("bob", post, IDS.next()) for _ in range(4)))
    assert await rows.favorites.save("bob", message, place)

    assert saved == [False] * 4
    sort = f"message#d-x#{17:020d}"
    assert await rows.all() == {
        ("u#bob#favorite", f"posts#{place}"): {"ref": f"post#{post.post}#alice"},
        ("u#bob#favorite", f"post#{post.post}#alice"): {"place": f"posts#{place}"},
        ("u#bob#favorite", f"messages#{place}"): {"ref": sort},
        ("u#bob#favorite", sort): {"place": f"messages#{place}"},
    }
    assert await rows.favorites.find_saved("bob", [post]) == {post}
    assert await rows.favorites.remove("bob", post)
    assert not await rows.favorites.remove("bob", post)
    assert await rows.favorites.remove_all("bob") == 1
    assert await rows.all() == {}


@pytest.mark.constants({"chatserver.features.social.warm.favorites.FAVORITES_MAX": 2})
async def test_favorites_of_each_kind_are_limited(tables: Tables) -> None:
    """A favorite beyond the limit is refused; a repeated one is not."""
    favorites = social_rows_of(tables).favorites
    posts = [PostRef(IDS.next(), "alice") for _ in range(3)]
    for post in posts[:2]:
        await favorites.save("bob", post, IDS.next())

    with pytest.raises(TooLarge, match="favorites: at most 2"):
        await favorites.save("bob", posts[2], IDS.next())

    assert not await favorites.save("bob", posts[0], IDS.next())
    assert await favorites.save("bob", MessageRef(ChatId("d-x"), Seq(1)), IDS.next())
    await favorites.remove("bob", posts[0])
    assert await favorites.save("bob", posts[2], IDS.next())
