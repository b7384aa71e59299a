"""trim_persisted.lua: logs are trimmed up to the persisted position and never beyond it."""

from __future__ import annotations

from chatserver.domain.messages import REF_TTL_S, reference_key
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CHAT,
    EPOCH,
    KNOWN,
    Scripts,
    Sending,
    packed,
)


def persisted(scripts: Scripts, upto: int, log_max: int, epoch: str = EPOCH) -> int:
    """Record that the chat is persisted up to a seq; return the number of trimmed entries."""
    args = {"log_max": log_max, "ref_ttl_s": REF_TTL_S, "epoch": epoch}
    trimmed: int = scripts.run("trim_persisted", args, [{"upto": upto, "dead": ""}])
    return trimmed


def fill(scripts: Scripts, count: int) -> None:
    """Commit `count` messages."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(count)])


def log_seqs(scripts: Scripts) -> list[int]:
    """Return the seqs in the log."""
    return [seq for seq, _, _ in scripts.log()]


def test_persisted_keeps_the_newest_messages(scripts: Scripts) -> None:
    """The newest `log_max` persisted messages remain for readers."""
    fill(scripts, 30)

    assert persisted(scripts, 30, log_max=10) == 20
    assert log_seqs(scripts) == list(range(21, 31))


def test_persisted_never_trims_unpersisted_messages(scripts: Scripts) -> None:
    """The log may exceed its limit with messages that no other tier has (guarantee P1)."""
    fill(scripts, 30)

    assert persisted(scripts, 5, log_max=10) == 5
    assert log_seqs(scripts) == list(range(6, 31))


def test_persisted_does_not_trim_a_short_log(scripts: Scripts) -> None:
    """A log within the limit keeps all its messages."""
    fill(scripts, 8)

    assert persisted(scripts, 8, log_max=10) == 0
    assert log_seqs(scripts) == list(range(1, 9))


def test_persisted_records_the_position(scripts: Scripts) -> None:
    """The position is in the head of the chat."""
    fill(scripts, 30)

    persisted(scripts, 12, log_max=100)

    assert scripts.head()["stored"] == "12"


def test_persisted_late_call_does_not_move_the_position_back(scripts: Scripts) -> None:
    """A slow worker may report an earlier position."""
    fill(scripts, 30)
    persisted(scripts, 20, log_max=10)

    persisted(scripts, 12, log_max=10)

    assert scripts.head()["stored"] == "20"
    assert log_seqs(scripts) == list(range(21, 31))


def test_persisted_position_above_the_newest_entry_is_ignored(scripts: Scripts) -> None:
    """It is from an earlier epoch: Redis lost these entries, and will assign their seqs again."""
    fill(scripts, 30)
    persisted(scripts, 12, log_max=100)

    persisted(scripts, 31, log_max=100)

    assert scripts.head()["stored"] == "12"


def test_persisted_position_of_an_evicted_chat_is_ignored(scripts: Scripts) -> None:
    """A worker that persists entries again must not create an incomplete chat in Redis."""
    assert persisted(scripts, 12, log_max=100) == 0

    assert not scripts.redis.exists(scripts.keys.chat(CHAT))


def test_persisted_position_of_an_earlier_epoch_is_ignored(scripts: Scripts) -> None:
    """The seqs may belong to other entries now, which are not persisted (P1)."""
    scripts.open_chat(ALICE, BOB, epoch="E2")
    scripts.accept(*[Sending(ALICE, f"r{n}", gate="E2:1") for n in range(3)], epoch="E2")

    assert persisted(scripts, 2, log_max=1, epoch=EPOCH) == 0

    assert log_seqs(scripts) == [1, 2, 3]
    assert scripts.head()["stored"] == "0"


def test_persisted_position_of_a_chat_that_is_not_loaded_again_is_recorded(
    scripts: Scripts,
) -> None:
    """Redis kept the entries of the earlier epoch."""
    fill(scripts, 3)

    persisted(scripts, 2, log_max=10, epoch="E2")

    assert scripts.head()["stored"] == "2"


def test_persisted_trims_several_chats_in_one_call(scripts: Scripts) -> None:
    """The result is the total number of trimmed entries."""
    fill(scripts, 30)
    items = [{"upto": upto, "dead": ""} for upto in (10, 15)]

    args = {"log_max": 10, "ref_ttl_s": REF_TTL_S, "epoch": EPOCH}
    trimmed = scripts.run("trim_persisted", args, items)

    assert trimmed == 15


# outdated refs


def add_refs(scripts: Scripts, stem: str, count: int, age_s: float) -> set[bytes]:
    """Add refs of messages that are `age_s` old; return their fields."""
    seconds, _ = scripts.redis.time()
    ts = int((seconds - age_s) * 1e6)
    fields = [reference_key(ALICE, f"{stem}{n}") for n in range(count)]
    mapping = {field: packed(f"1:{ts}:M{n}:d1") for n, field in enumerate(fields)}
    scripts.redis.hset(scripts.keys.chat(CHAT), mapping=mapping)
    return set(fields)


def count_old(scripts: Scripts, old: set[bytes]) -> int:
    """Return how many of the refs are left."""
    return len(old & set(scripts.refs()))


def test_persisted_removes_outdated_refs_of_a_large_hash_in_several_calls(scripts: Scripts) -> None:
    """Each call removes about as many as it got messages; a day's younger refs stay."""
    fill(scripts, 3)
    scripts.redis.hset(scripts.keys.chat(CHAT), "seq", 10_000)
    old = add_refs(scripts, "old", 2_000, REF_TTL_S + 1)
    young = {*scripts.refs()} - old | add_refs(scripts, "young", 2_000, REF_TTL_S - 60)
    head = scripts.head()
    left = [len(old)]

    for upto in range(10, 10_001, 10):
        persisted(scripts, upto, log_max=10)
        left.append(count_old(scripts, old))
        assert left[-2] - left[-1] <= 4 * 10 + 30  # `HSCAN` ends after a whole bucket
        assert young <= set(scripts.refs())
        if not left[-1]:
            break

    assert left[-1] == 0
    # About four fields are scanned per message.
    assert 4_000 / 4 * 0.7 < upto < 4_000 / 4 * 2
    assert {**scripts.head(), "scan": ""} == {**head, "scan": "", "stored": str(upto)}


def test_persisted_scans_a_large_hash_again_after_a_pause(scripts: Scripts) -> None:
    """A ref that is young in one pass is removed in a later one, six hours after the first."""
    fill(scripts, 1)
    scripts.redis.hset(scripts.keys.chat(CHAT), "seq", 1_000_000)
    add_refs(scripts, "young", 600, 60)
    for upto in range(250, 2_000, 250):  # more than one pass
        persisted(scripts, upto, log_max=10)
    assert len(scripts.refs()) == 601

    old = add_refs(scripts, "young", 600, REF_TTL_S + 1)
    for upto in range(2_000, 4_000, 250):
        persisted(scripts, upto, log_max=10)
    assert count_old(scripts, old) == 600
    ended_s = int(scripts.head()["scan"].removeprefix("@"))
    scripts.redis.hset(scripts.keys.chat(CHAT), "scan", f"@{ended_s - 21_600}")
    for upto in range(4_000, 6_000, 250):
        persisted(scripts, upto, log_max=10)

    assert count_old(scripts, old) == 0
    assert reference_key(ALICE, "r0") in scripts.refs()


def test_persisted_keeps_outdated_refs_of_a_small_hash(scripts: Scripts) -> None:
    """They use little memory, and most chats are small: these are not scanned."""
    fill(scripts, 20)
    fields = len(scripts.redis.hkeys(scripts.keys.chat(CHAT)))
    old = add_refs(scripts, "old", 40 - fields - 1, REF_TTL_S + 1)  # `stored` is added

    persisted(scripts, 20, log_max=10)

    assert count_old(scripts, old) == len(old)
    assert "scan" not in scripts.head()


def test_persisted_late_call_does_not_scan(scripts: Scripts) -> None:
    """The work is in proportion to the messages that are newly persisted."""
    fill(scripts, 20)
    persisted(scripts, 20, log_max=10)
    old = add_refs(scripts, "old", 600, REF_TTL_S + 1)

    persisted(scripts, 20, log_max=10)

    assert count_old(scripts, old) == 600


def test_persisted_of_many_messages_at_once_removes_outdated_refs(scripts: Scripts) -> None:
    """One call may get all messages of a long outage; it scans about a thousand fields."""
    fill(scripts, 1)
    scripts.redis.hset(scripts.keys.chat(CHAT), "seq", 100_000)
    old = add_refs(scripts, "old", 20_000, REF_TTL_S + 1)

    persisted(scripts, 100_000, log_max=10)

    assert 17_000 < count_old(scripts, old) < 20_000
    assert reference_key(ALICE, "r0") in scripts.refs()


def test_persisted_large_hash_without_outdated_refs_loses_nothing(scripts: Scripts) -> None:
    """Every retry within a day is recognized, however busy the chat is (guarantee P2)."""
    fill(scripts, 1)
    first = scripts.refs()
    for call in range(40):
        scripts.accept(*[Sending(ALICE, f"b{call}-{n}") for n in range(100)])
        persisted(scripts, (call + 1) * 100, log_max=10)
    head = scripts.head()

    assert len(scripts.refs()) == 4_001
    retries = [Sending(ALICE, f"b{call}-{n}") for call in range(40) for n in (0, 99)]
    answers = scripts.accept(*retries)
    assert {answer.code for answer in answers} == {KNOWN}
    assert first.items() <= scripts.refs().items()
    assert scripts.head() == head
