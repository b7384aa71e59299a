"""trim_persisted.lua: logs are trimmed up to the persisted position and never beyond it."""

from __future__ import annotations

from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, Sending


def persisted(scripts: Scripts, upto: int, log_max: int) -> int:
    """Record that the chat is persisted up to a seq; return the number of trimmed entries."""
    trimmed: int = scripts.run("trim_persisted", {"log_max": log_max}, [{"upto": upto, "dead": ""}])
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


def test_persisted_trims_several_chats_in_one_call(scripts: Scripts) -> None:
    """The result is the total number of trimmed entries."""
    fill(scripts, 30)
    items = [{"upto": upto, "dead": ""} for upto in (10, 15)]

    trimmed = scripts.run("trim_persisted", {"log_max": 10}, items)

    assert trimmed == 15
