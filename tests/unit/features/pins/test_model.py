"""Keys and digests of pinned messages."""

from __future__ import annotations

from chatserver.domain.ids import Ref, UserId
from chatserver.features.pins.model import compute_request_digest
from chatserver.features.pins.warm import AFTER_PINS, PIN, PREFIX
from chatserver.warm.chats.directory_items import AFTER_MEMBERS


def test_pins_sort_by_seq_and_are_outside_member_queries() -> None:
    """Queries read a chat's partition by ranges of the sort key."""
    keys = [PIN.key(chat="g-x", seq=seq)[1] for seq in (1, 9, 10, 2**53 - 1)]

    assert keys == sorted(keys)
    assert all(PREFIX < key < AFTER_PINS for key in keys)
    assert AFTER_MEMBERS < PREFIX
    assert not PREFIX < "pins#g-x" < AFTER_PINS


def test_digest_of_a_request_differs_by_user_and_reference() -> None:
    """A retry has the same digest, and the digest does not reveal the user."""
    digests = {
        compute_request_digest(UserId(user), Ref(ref))
        for user, ref in (("alice", "r1"), ("alice", "r2"), ("bob", "r1"), ("alice", "r1"))
    }

    assert len(digests) == 3
    assert not any("alice" in digest for digest in digests)
