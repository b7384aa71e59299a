"""When items go by themselves."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from chatserver.config import Archive
from chatserver.warm.messages.store import PersistItem, encode_item
from chatserver.warm.messages.ttl import FOR_EVER, ItemRetention, find_ttl
from tests.integration.warm.support import START_TS, message

SENT_S = START_TS // 1_000_000 + 1
DAY_S = 86_400
KEEPING = ItemRetention.by(Archive(removal="ttl", retention_s=30 * DAY_S))


def test_item_goes_when_it_is_old_and_the_archive_had_its_time() -> None:
    """An item that the worker removes, or without an archive, has no `ttl`."""
    by_worker = ItemRetention.by(Archive(retention_s=30 * DAY_S))
    nothing_moves = ItemRetention.by(Archive(removal="ttl"))

    assert KEEPING.removed_at(message(1).ts, SENT_S) == SENT_S + 32 * DAY_S
    for keeping in (by_worker, nothing_moves, FOR_EVER):
        assert keeping.removed_at(message(1).ts, SENT_S) is None


def test_item_that_is_written_when_its_message_is_old_stays() -> None:
    """The archive would have no time for it."""
    ts = message(1).ts

    assert KEEPING.removed_at(ts, SENT_S + 30 * DAY_S) == SENT_S + 32 * DAY_S
    assert KEEPING.removed_at(ts, SENT_S + 30 * DAY_S + 1) is None


def test_item_whose_text_ends_goes_then_and_no_earlier() -> None:
    """Its text is in no archive, so age is no reason."""
    ending = PersistItem(message(1, expires_at=SENT_S + 400 * DAY_S), None)

    item = encode_item(ending, removed_at=SENT_S + 32 * DAY_S)

    assert find_ttl(item) == SENT_S + 400 * DAY_S
    assert find_ttl(encode_item(PersistItem(message(1), None), removed_at=7)) == 7
    assert find_ttl(encode_item(PersistItem(message(1), None))) is None


def test_item_may_be_archived_by_its_age_or_by_its_ttl() -> None:
    """Whichever comes first: it may have been written under another retention."""
    item = encode_item(PersistItem(message(1), None), removed_at=SENT_S + 32 * DAY_S)
    short = encode_item(PersistItem(message(1), None), removed_at=SENT_S + 9 * DAY_S)

    assert not KEEPING.may_be_archived(item, SENT_S + 29 * DAY_S)
    assert KEEPING.may_be_archived(item, SENT_S + 30 * DAY_S)
    assert KEEPING.may_be_archived(short, SENT_S + 7 * DAY_S)
    assert not KEEPING.may_be_archived({**short, "expires_at": {"N": "1"}}, SENT_S + 99 * DAY_S)


def test_item_of_a_much_longer_retention_is_not_left_to_ttl() -> None:
    """After the retention is shortened, storage is freed soon."""
    assert KEEPING.is_soon(SENT_S, SENT_S - 2 * DAY_S)
    assert not KEEPING.is_soon(SENT_S + 300 * DAY_S, SENT_S)
    assert not KEEPING.is_soon(None, SENT_S)


def test_margin_must_leave_the_archive_its_time() -> None:
    """TTL must not be faster than the worker may be."""
    with pytest.raises(ValidationError, match="ttl_margin_s"):
        Archive(removal="ttl", retention_s=DAY_S, ttl_margin_s=DAY_S)
    Archive(removal="ttl", ttl_margin_s=DAY_S)
    Archive(retention_s=DAY_S, ttl_margin_s=0)
