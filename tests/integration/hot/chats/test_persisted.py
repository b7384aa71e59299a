"""trim_persisted.lua: logs are trimmed behind what the warm tier has, and never past it."""

from __future__ import annotations

from chatserver.hot.redis.scripts import Value
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts, Sending

pytest_plugins = ["tests.integration.hot.fixtures"]


def persisted(scripts: Scripts, upto: int, log_max: int) -> int:
    """Note that the chat is persisted up to a seq; return how many entries left its log."""
    gone: int = scripts.run(
        "trim_persisted",
        args={"log_max": log_max},
        items=[{**item_of(scripts), "upto": upto}],
    )
    return gone


def item_of(scripts: Scripts) -> dict[str, Value]:
    """Return the keys of the chat."""
    keys = scripts.keys
    return {
        "chat": keys.chat(CHAT),
        "log": keys.log(CHAT),
        "over": keys.over(CHAT),
        "revs": keys.revs(CHAT),
    }


def fill(scripts: Scripts, count: int) -> None:
    """Commit so many messages."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(count)])


def held(scripts: Scripts) -> list[int]:
    """Return the seqs in the log."""
    return [seq for seq, _, _ in scripts.log()]


def test_persisted_keeps_the_newest_messages(scripts: Scripts) -> None:
    """Of what is persisted, `log_max` messages stay for readers."""
    fill(scripts, 30)

    assert persisted(scripts, 30, log_max=10) == 20
    assert held(scripts) == list(range(21, 31))


def test_persisted_never_trims_what_is_not_persisted(scripts: Scripts) -> None:
    """The log may grow beyond its bound; what it alone has stays (promise P1)."""
    fill(scripts, 30)

    assert persisted(scripts, 5, log_max=10) == 5
    assert held(scripts) == list(range(6, 31))


def test_persisted_short_log_stays_whole(scripts: Scripts) -> None:
    """A chat with less than the bound loses nothing."""
    fill(scripts, 8)

    assert persisted(scripts, 8, log_max=10) == 0
    assert held(scripts) == list(range(1, 9))


def test_persisted_notes_how_far(scripts: Scripts) -> None:
    """The persisted position of a chat can be read."""
    fill(scripts, 30)

    persisted(scripts, 12, log_max=100)

    assert scripts.head()["stored"] == "12"


def test_persisted_late_call_does_not_go_back(scripts: Scripts) -> None:
    """A slow worker reports a position that is already known."""
    fill(scripts, 30)
    persisted(scripts, 20, log_max=10)

    persisted(scripts, 12, log_max=10)

    assert scripts.head()["stored"] == "20"
    assert held(scripts) == list(range(21, 31))


def test_persisted_several_chats_add_up(scripts: Scripts) -> None:
    """One call trims many logs."""
    fill(scripts, 30)
    item = item_of(scripts)

    gone = scripts.run(
        "trim_persisted", args={"log_max": 10}, items=[{**item, "upto": 10}, {**item, "upto": 15}]
    )

    assert gone == 15
