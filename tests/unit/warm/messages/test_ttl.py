"""TTL of message items."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from chatserver.config import Archive
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.messages.ttl import NO_EXPIRY, ItemRetention, find_ttl
from tests.integration.warm.support import START_TS, message

SENT_S = START_TS // 1_000_000 + 1
DAY_S = 86_400
RETENTION = ItemRetention.by(Archive(removal="ttl", retention_s=30 * DAY_S))


def test_item_expires_after_retention_and_archiving_time() -> None:
    """Without an archive, or with removal by the worker, an item has no `ttl`."""
    by_worker = ItemRetention.by(Archive(retention_s=30 * DAY_S))
    nothing_moves = ItemRetention.by(Archive(removal="ttl"))

    assert RETENTION.compute_ttl(message(1).ts, SENT_S) == SENT_S + 32 * DAY_S
    for retention in (by_worker, nothing_moves, NO_EXPIRY):
        assert retention.compute_ttl(message(1).ts, SENT_S) is None


def test_item_written_after_the_retention_has_no_ttl() -> None:
    """TTL would remove the item before it could be archived."""
    ts = message(1).ts

    assert RETENTION.compute_ttl(ts, SENT_S + 30 * DAY_S) == SENT_S + 32 * DAY_S
    assert RETENTION.compute_ttl(ts, SENT_S + 30 * DAY_S + 1) is None


def test_item_of_an_expiring_message_has_the_message_expiry_as_ttl() -> None:
    """The body of an expiring message is never archived, so the retention does not apply."""
    ending = PersistItem(message(1, expires_at=SENT_S + 400 * DAY_S), None)

    item = encode_item(ending, removed_at=SENT_S + 32 * DAY_S)

    assert find_ttl(item) == SENT_S + 400 * DAY_S
    assert find_ttl(encode_item(PersistItem(message(1), None), removed_at=7)) == 7
    assert find_ttl(encode_item(PersistItem(message(1), None))) is None


def test_item_can_be_archived_by_its_age_or_its_ttl() -> None:
    """The earlier one applies: the item may have another retention."""
    item = encode_item(PersistItem(message(1), None), removed_at=SENT_S + 32 * DAY_S)
    short = encode_item(PersistItem(message(1), None), removed_at=SENT_S + 9 * DAY_S)

    assert not RETENTION.may_be_archived(item, SENT_S + 29 * DAY_S)
    assert RETENTION.may_be_archived(item, SENT_S + 30 * DAY_S)
    assert RETENTION.may_be_archived(short, SENT_S + 7 * DAY_S)
    assert not RETENTION.may_be_archived({**short, "expires_at": {"N": "1"}}, SENT_S + 99 * DAY_S)


def test_item_with_a_much_later_ttl_is_removed_by_the_worker() -> None:
    """Storage is freed soon after the retention is shortened."""
    assert RETENTION.is_soon(SENT_S, SENT_S - 2 * DAY_S)
    assert not RETENTION.is_soon(SENT_S + 300 * DAY_S, SENT_S)
    assert not RETENTION.is_soon(None, SENT_S)


def test_ttl_margin_must_be_shorter_than_the_retention() -> None:
    """TTL must not remove items before they can be archived."""
    with pytest.raises(ValidationError, match="ttl_margin_s"):
        Archive(removal="ttl", retention_s=DAY_S, ttl_margin_s=DAY_S)
    Archive(removal="ttl", ttl_margin_s=DAY_S)
    Archive(retention_s=DAY_S, ttl_margin_s=0)
