"""The stored record of a message's position, and the digest of its content."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.messages import compute_digest, format_ref_record, parse_ref_record

kinds = st.from_regex(r"[a-z][a-z0-9_.-]{0,31}", fullmatch=True)
bodies = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
replies = st.none() | st.integers(1, 2**53 - 1)
ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
seqs = st.integers(1, 2**40 - 1)
times = st.integers(1, 2**53 - 1)


@given(seqs, times, ids, kinds, bodies, replies)
def test_position_record_round_trips(
    seq: int, ts: int, mid: str, kind: str, body: str, reply_to: int | None
) -> None:
    """A retry gets back exactly the result of the first send."""
    digest = compute_digest(kind, body, reply_to)

    place = format_ref_record(seq, ts, mid, digest)

    assert parse_ref_record(place) == (seq, ts, mid, digest)


def test_digest_of_the_same_message_is_the_same_in_every_process() -> None:
    """The digest has no seed, so a retry at another gateway is not a conflict."""
    assert compute_digest("text", "hi", None) == "561c7b3d"
    assert compute_digest("image", "näive 🙂", 7) == "e58a7efa"


@given(kinds, bodies, replies, st.data())
def test_digest_of_a_message_with_one_change_differs(
    kind: str, body: str, reply_to: int | None, data: st.DataObject
) -> None:
    """The digest detects every short change: such a retry gets a conflict."""
    at = data.draw(st.integers(0, len(body)))
    changed = body[:at] + data.draw(st.sampled_from("abc 0")) + body[at:]

    assert compute_digest(kind, body, reply_to) != compute_digest(kind, changed, reply_to)


def test_digest_separates_kind_body_and_reply() -> None:
    """Text that moves from one field to another is another message."""
    digests = {
        compute_digest("a", "b", None),
        compute_digest("a", "None:b", 1),
        compute_digest("a", "1:b", None),
        compute_digest("a", "b", 1),
        compute_digest("b", "a", None),
    }

    assert len(digests) == 5
