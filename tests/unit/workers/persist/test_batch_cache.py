"""The cache of decoded batches and its limit."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from tests.unit.workers.persist.test_chat_queues import work_of
from workers.persist.batch_cache import BatchCache, WritesByChat
from workers.persist.chat_queues import estimate_size

A, B = ChatId("a"), ChatId("b")


def batch(count: int = 1) -> WritesByChat:
    """Return entries of two chats."""
    return {chat: [work_of(chat, seq) for seq in range(1, count + 1)] for chat in (A, B)}


def test_pop_returns_the_entries_of_a_chat_once() -> None:
    """The entries of other chats stay cached."""
    cache = BatchCache(10**6)
    cache.put("1-0", batch())

    assert cache.pop("2-0", A) is None
    assert cache.pop("1-0", A) == [work_of("a", 1)]
    assert cache.pop("1-0", A) is None
    assert cache.pop("1-0", B) == [work_of("b", 1)]


def test_put_beyond_the_bound_drops_the_oldest_batches() -> None:
    """The newest batch is kept, even if it is larger than the bound."""
    cache = BatchCache(2 * estimate_size([work_of("a", 1)]))
    for first in ("1-0", "2-0"):
        cache.put(first, batch())
    assert cache.pop("1-0", A) is None
    assert cache.pop("2-0", A) is not None

    cache.put("3-0", batch(100))

    assert cache.pop("2-0", B) is None
    assert len(cache.pop("3-0", B) or []) == 100


def test_put_of_a_batch_again_replaces_it() -> None:
    """The size of a batch that was read again is not added twice."""
    cache = BatchCache(3 * estimate_size([work_of("a", 1)]))
    cache.put("1-0", batch())
    cache.put("1-0", batch())

    cache.put("2-0", {A: [work_of("a", 2)]})

    assert cache.pop("1-0", A) == [work_of("a", 1)]
    assert cache.pop("2-0", A) == [work_of("a", 2)]
