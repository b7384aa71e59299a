"""The checker finds each way in which messages can go wrong, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from chatserver.loadtest.checker import Book, Findings, Seen, key_of

ALL = list(range(1, 8))


def judged(places: list[int], acked: list[int] = ALL) -> Counter[str]:
    """Return what is found when a device is sent places of a chat in which `ALL` were sent."""
    findings = Findings()
    book, seen = Book("chat", 1, findings), Seen()
    seen.last = 0
    for place in acked:
        book.put(place, key_of(1, place), is_ack=True)
    for place in places:
        seen.take(place, "bob", findings)
        book.put(place, key_of(1, place))
    book.finish(())
    findings.counts["lost"] += len(book.list_unseen(seen))
    return +findings.counts


@pytest.mark.parametrize(
    ("places", "found"),
    [
        (ALL, {}),
        ([1, 2, 4, 5, 6, 7], {"lost": 1}),
        ([1, 2, 3, 4, 5], {"lost": 2}),
        ([1, 2, 2, 3, 4, 5, 6, 7], {"duplicate": 1}),
        ([1, 3, 2, 4, 5, 6, 7], {"disordered": 1}),
        ([1, 3, 2, 2, 4, 6, 7], {"disordered": 1, "duplicate": 1, "lost": 1}),
    ],
)
def test_checker_finds_what_was_lost_repeated_or_swapped(
    places: list[int], found: dict[str, int]
) -> None:
    """Each planted fault is counted once, as what it is."""
    assert judged(places) == found


def test_checker_asks_only_for_what_was_acked() -> None:
    """Only acked messages must exist."""
    assert judged([1, 2, 3, 4, 5], acked=[1, 2, 3, 4, 5]) == {}


def test_checker_finds_two_messages_at_one_place() -> None:
    """All devices and all acks agree on one order."""
    findings = Findings()
    book = Book("chat", 2, findings)

    book.put(1, key_of(1, 1), is_ack=True)
    book.put(1, key_of(2, 1))

    assert +findings.counts == {"mismatched": 1}


def test_checker_finds_one_message_at_two_places() -> None:
    """A send that is repeated makes no second message."""
    findings = Findings()
    book = Book("chat", 1, findings)

    book.put(1, key_of(1, 1), is_ack=True)
    book.put(2, key_of(1, 1))
    book.finish(())

    assert +findings.counts == {"duplicate": 1}


def test_checker_finds_a_sender_whose_messages_are_out_of_order() -> None:
    """Except after a retry, which a later message may overtake."""
    found = []
    for repeated in ((), (key_of(1, 1),)):
        findings = Findings()
        book = Book("chat", 1, findings)
        book.put(1, key_of(1, 2), is_ack=True)
        book.put(2, key_of(1, 1), is_ack=True)
        book.finish(repeated)
        found.append(+findings.counts)

    assert found == [{"disordered": 1}, {}]


def test_checker_takes_from_history_what_is_then_pushed_as_well() -> None:
    """A page and a push of the same message during a gap are not a duplicate."""
    findings, seen = Findings(), Seen()
    for place in (1, 5):
        seen.take(place, "bob", findings)

    filled = [seen.fill(place) for place in (2, 3, 4, 5, 6)]
    pushed = [seen.take(place, "bob", findings) for place in (6, 7)]

    assert filled == [True, True, True, False, True]
    assert pushed == [False, True]
    assert not +findings.counts and not seen.missing
