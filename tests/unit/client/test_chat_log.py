"""A device's copy of a chat, and the part of it that is kept in a new epoch."""

from __future__ import annotations

import msgspec

from chatserver.client.chat_log import ReceivedChatLog
from chatserver.client.model import Entry
from tests.unit.client.device import entry


def entries(*seqs: int, later_s: int = 0) -> list[Entry]:
    """Return entries with ids derived from their seqs."""
    return [msgspec.convert(entry(seq, ts=seq + later_s), Entry) for seq in seqs]


def test_entry_rewritten_at_the_same_seq_is_withdrawn() -> None:
    """The id is the same, but the later time shows that earlier entries may have changed too."""
    log = ReceivedChatLog(100)
    log.start_after(0)
    log.put_page(entries(1, 2, 3))
    list(log.advance())
    log.mark_unverified()

    verified = log.verify([*entries(1), *entries(2, 3, later_s=10)], has_older=False)

    assert verified is not None
    assert (verified.match_seq, verified.withdrawn) == (1, (2, 3))


def test_entry_rewritten_at_a_lower_seq_is_delivered_again() -> None:
    """A device that joined just before the data loss receives its join at the new position."""
    log = ReceivedChatLog(100)
    log.start_after(24)
    log.put_page(entries(25))
    list(log.advance())
    log.mark_unverified()
    (joined,) = entries(25, later_s=10)
    page = [msgspec.structs.replace(joined, seq=23), *entries(24, 25, later_s=20)]

    verified = log.verify(page, has_older=False)

    assert verified is not None
    assert (verified.match_seq, verified.withdrawn) == (22, (25,))
    assert [entry.seq for entry in log.advance()] == [23, 24, 25]
