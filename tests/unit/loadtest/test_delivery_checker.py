"""The checker finds lost, repeated, reordered and conflicting messages, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from chatserver.loadtest.delivery_checker import ChatRecord, Findings, ReceivedSeqs, encode_key

ALL = list(range(1, 8))


def check(seqs: list[int], acked: list[int] = ALL) -> Counter[str]:
    """Return the findings for a device that receives these seqs; `acked` were sent."""
    findings = Findings()
    chat_record, seen = ChatRecord("chat", 1, findings), ReceivedSeqs()
    seen.last = 0
    for seq in acked:
        chat_record.put(seq, encode_key(1, seq), is_ack=True)
    for seq in seqs:
        seen.record_pushed(seq, "bob", findings)
        chat_record.put(seq, encode_key(1, seq))
    chat_record.finish(())
    findings.counts["lost"] += len(chat_record.list_unseen(seen))
    return +findings.counts


@pytest.mark.parametrize(
    ("seqs", "found"),
    [
        (ALL, {}),
        ([1, 2, 4, 5, 6, 7], {"lost": 1}),
        ([1, 2, 3, 4, 5], {"lost": 2}),
        ([1, 2, 2, 3, 4, 5, 6, 7], {"duplicate": 1}),
        ([1, 3, 2, 4, 5, 6, 7], {"disordered": 1}),
        ([1, 3, 2, 2, 4, 6, 7], {"disordered": 1, "duplicate": 1, "lost": 1}),
    ],
)
def test_checker_finds_lost_repeated_and_reordered_messages(
    seqs: list[int], found: dict[str, int]
) -> None:
    """Each injected fault is counted once, with its kind."""
    assert check(seqs) == found


def test_checker_without_an_ack_reports_no_loss() -> None:
    """Only acked messages must exist."""
    assert check([1, 2, 3, 4, 5], acked=[1, 2, 3, 4, 5]) == {}


def test_checker_finds_two_messages_at_one_seq() -> None:
    """All devices and all acks agree on one order."""
    findings = Findings()
    chat_record = ChatRecord("chat", 2, findings)

    chat_record.put(1, encode_key(1, 1), is_ack=True)
    chat_record.put(1, encode_key(2, 1))

    assert +findings.counts == {"mismatched": 1}


def test_checker_finds_one_message_at_two_seqs() -> None:
    """A repeated send must not create a second message."""
    findings = Findings()
    chat_record = ChatRecord("chat", 1, findings)

    chat_record.put(1, encode_key(1, 1), is_ack=True)
    chat_record.put(2, encode_key(1, 1))
    chat_record.finish(())

    assert +findings.counts == {"duplicate": 1}


def test_checker_finds_a_sender_whose_messages_are_out_of_order() -> None:
    """A retry is an exception: a later message may overtake it."""
    found = []
    for retried in ((), (encode_key(1, 1),)):
        findings = Findings()
        chat_record = ChatRecord("chat", 1, findings)
        chat_record.put(1, encode_key(1, 2), is_ack=True)
        chat_record.put(2, encode_key(1, 1), is_ack=True)
        chat_record.finish(retried)
        found.append(+findings.counts)

    assert found == [{"disordered": 1}, {}]


def test_checker_accepts_a_message_from_history_and_a_push() -> None:
    """A page and a push of the same message during a gap are not a duplicate."""
    findings, seen = Findings(), ReceivedSeqs()
    for seq in (1, 5):
        seen.record_pushed(seq, "bob", findings)

    filled = [seen.record_loaded(seq) for seq in (2, 3, 4, 5, 6)]
    pushed = [seen.record_pushed(seq, "bob", findings) for seq in (6, 7)]

    assert filled == [True, True, True, False, True]
    assert pushed == [False, True]
    assert not +findings.counts and not seen.missing
