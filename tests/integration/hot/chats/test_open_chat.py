"""load_chat.lua: a loaded chat continues above the seqs and timestamps of all tiers."""

from __future__ import annotations

import time

from chatserver.domain.messages import reference_key
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    CHAT,
    COMMITTED,
    EPOCH,
    KNOWN,
    OTHER_EPOCH,
    Answer,
    Scripts,
    Sending,
    packed,
)


def test_open_chat_has_head_and_members_of_the_warm_tier(scripts: Scripts) -> None:
    """The chat continues at the seq of the warm tier."""
    opened = scripts.open_chat(ALICE, BOB, seq=7, ts=700, version=3, kind="group", name="Ümlaut")

    assert opened == 1
    assert scripts.head() == {
        "gate": f"{EPOCH}:3",
        "seq": "7",
        "ts": "700",
        "base": "7",
        "stored": "7",
        "kind": "group",
        "name": "Ümlaut",
        "picture": "",
        "history": "joined",
        "large": "0",
        "turns": "",
    }
    assert scripts.hash(scripts.keys.members(CHAT)) == {"alice": "member:0", "bob": "member:0"}


def test_open_chat_again_in_the_same_epoch_changes_nothing(scripts: Scripts) -> None:
    """A second load keeps the state of the first one, and later messages."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r"))
    before = scripts.head()

    opened = scripts.open_chat(ALICE, CAROL, seq=99, version=2, name="other")

    assert opened == 0
    assert scripts.head() == before
    assert "bob" in scripts.hash(scripts.keys.members(CHAT))


def test_open_chat_in_next_epoch_uses_the_higher_position_of_both_tiers(scripts: Scripts) -> None:
    """No seq or timestamp is assigned twice (guarantee P3)."""
    scripts.open_chat(ALICE, BOB)
    (last,) = scripts.accept(Sending(ALICE, "r"))

    scripts.open_chat(ALICE, BOB, epoch="E2", seq=5, ts=8)

    assert scripts.head()["seq"] == "5"
    assert scripts.head()["ts"] == str(last.ts)
    assert scripts.head()["base"] == "5"


def test_open_chat_in_next_epoch_keeps_a_head_ahead_of_the_warm_tier(scripts: Scripts) -> None:
    """The head includes unpersisted messages. The persisted position is separate."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(4)])
    ahead = 2**52

    scripts.open_chat(ALICE, BOB, epoch="E2", seq=3, ts=ahead)

    assert scripts.head()["seq"] == "4"
    assert scripts.head()["stored"] == "3"
    assert scripts.head()["ts"] == str(ahead)


def test_open_chat_in_next_epoch_keeps_what_was_persisted_since_the_warm_tier_was_read(
    scripts: Scripts,
) -> None:
    """The persist worker does not record these entries again. Dead letters are not stored."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(4)])
    args = {"log_max": 10, "ref_ttl_s": 60, "epoch": "E2"}
    scripts.run("trim_persisted", args, [{"upto": 3, "dead": "1,3"}])

    scripts.open_chat(ALICE, BOB, epoch="E2", seq=2)

    assert scripts.head()["stored"] == "3"
    assert scripts.head()["dead"] == "3"
    assert [seq for seq, _, _ in scripts.log()] == [4]


def test_open_chat_large_numbers_stay_exact(scripts: Scripts) -> None:
    """By default Lua prints large numbers as 1.7e+15."""
    scripts.open_chat(ALICE, BOB, seq=123_456_789_012_345, ts=1_795_250_730_558_301)

    assert scripts.head()["seq"] == "123456789012345"
    assert scripts.head()["stored"] == "123456789012345"
    assert scripts.head()["ts"] == "1795250730558301"


def test_open_chat_replaces_members_of_an_earlier_epoch(scripts: Scripts) -> None:
    """A user who is not a member in the directory is not a member in Redis (guarantee P7)."""
    scripts.open_chat(ALICE, BOB)

    scripts.open_chat(ALICE, CAROL, epoch="E2", version=2)

    assert set(scripts.hash(scripts.keys.members(CHAT))) == {"alice", "carol"}


def test_open_chat_recognizes_refs_of_its_newest_messages(scripts: Scripts) -> None:
    """A retry after Redis lost everything finds the message in the warm tier (guarantee P2)."""
    now = int(time.time() * 1e6)
    place = f"7:{now}:M7:abcd"
    newest = {(ALICE, "r"): place, (BOB, "x"): f"6:{now - 1}:m:dd"}
    scripts.open_chat(ALICE, BOB, seq=7, ts=now, newest=newest)

    again, other = scripts.accept(Sending(ALICE, "r"), Sending(BOB, "new"))

    assert again == Answer(KNOWN, place=place)
    assert (other.code, other.seq) == (COMMITTED, 8)


def test_open_chat_skips_refs_that_are_older_than_their_ttl(
    scripts: Scripts,
) -> None:
    """A chat that was idle for a week uses little memory when it is read."""
    day_ago = int((time.time() - 86_400 - 60) * 1e6)
    scripts.open_chat(ALICE, BOB, seq=7, ts=day_ago, newest={(ALICE, "r"): f"7:{day_ago}:M7:abcd"})

    assert scripts.refs() == {}
    assert scripts.redis.hget(scripts.keys.chat(CHAT), f"s:{ALICE}") == b"7"


def test_open_chat_keeps_a_ref_that_redis_has(scripts: Scripts) -> None:
    """Refs in the hot tier are not overwritten."""
    scripts.open_chat(ALICE, BOB)
    (first,) = scripts.accept(Sending(ALICE, "r"))

    scripts.open_chat(ALICE, BOB, epoch="E2", newest={(ALICE, "r"): "1:1:other:dd"})

    (again,) = scripts.accept(Sending(ALICE, "r", gate="E2:1"), epoch="E2")
    assert again.place == f"1:{first.ts}:M1:d1"


def test_open_chat_keeps_a_hash_that_expires(scripts: Scripts) -> None:
    """The refs of an evicted chat expire; a loaded chat does not, and its refs are recognized."""
    key, place = scripts.keys.chat(CHAT), "3:5:M0:d0"
    scripts.redis.hset(key, reference_key(BOB, "old"), packed(place))
    scripts.redis.expire(key, 60)

    assert scripts.open_chat(ALICE, BOB, seq=3, ts=5) == 1

    assert scripts.redis.ttl(key) == -1
    known, new = scripts.accept(Sending(BOB, "old"), Sending(ALICE, "new"))
    assert known == Answer(KNOWN, place=place)
    assert (new.code, new.seq) == (COMMITTED, 4)


def test_open_chat_that_is_refused_leaves_the_expiry_of_refs(scripts: Scripts) -> None:
    """A call of another epoch changes nothing."""
    key = scripts.keys.chat(CHAT)
    scripts.redis.hset(key, reference_key(BOB, "old"), packed("3:5:M0:d0"))
    scripts.redis.expire(key, 60)

    assert scripts.open_chat(ALICE, BOB, redis_epoch="E2") == OTHER_EPOCH

    assert 0 < scripts.redis.ttl(key) <= 60


def test_open_chat_clears_a_pending_gate_of_the_previous_epoch(scripts: Scripts) -> None:
    """Inboxes restart at `base`, so no earlier entry is pending."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(Sending(ALICE, "r", to=()))

    scripts.open_chat(ALICE, BOB, epoch="E2")

    assert scripts.head()["gate"] == "E2:1"
    assert scripts.head()["base"] == "1"
    scripts.accept(Sending(ALICE, "r2", to=(), gate="E2:1"), epoch="E2")
    assert (scripts.head()["gate"], scripts.head()["done"]) == ("E2:1:p", "1")


def test_open_chat_without_members_or_messages_opens(scripts: Scripts) -> None:
    """A chat whose members have all left can still be read by its seq."""
    assert scripts.open_chat() == 1
    assert scripts.redis.exists(scripts.keys.members(CHAT)) == 0


def test_open_chat_with_the_largest_number_of_members_succeeds(scripts: Scripts) -> None:
    """One call may have 256 members and the 100 newest messages."""
    members = [f"u{n}" for n in range(256)]
    now = int(time.time() * 1e6)
    newest = {(ALICE, f"r{n}"): f"{n}:{now + n}:m:dd" for n in range(1, 101)}

    scripts.open_chat(*members, seq=100, ts=100, newest=newest)  # type: ignore[arg-type]  # plain names

    assert scripts.redis.hlen(scripts.keys.members(CHAT)) == 256
    assert len(scripts.refs()) == 100
    assert scripts.refs()[reference_key(ALICE, "r100")] == f"100:{now + 100}:m:dd"


def test_open_chat_in_an_epoch_that_ended_is_refused(scripts: Scripts) -> None:
    """Redis is empty or in another epoch, so nothing is loaded in the caller's epoch."""
    scripts.open_chat(ALICE, BOB)
    scripts.redis.flushall()

    assert scripts.open_chat(ALICE, BOB, redis_epoch="") == OTHER_EPOCH
    assert scripts.open_chat(ALICE, BOB, redis_epoch="E2") == OTHER_EPOCH
    assert scripts.head() == {}


def test_open_chat_in_next_epoch_drops_entries_that_the_warm_tier_has(scripts: Scripts) -> None:
    """Redis may have a text that was deleted; the warm tier has the current one."""
    scripts.open_chat(ALICE, BOB)
    scripts.accept(*[Sending(ALICE, f"r{n}") for n in range(1, 5)])
    keys = scripts.keys
    scripts.redis.hset(keys.over(CHAT), mapping={"1": "old", "2": "new"})
    scripts.redis.zadd(keys.revs(CHAT), {"1": 3, "2": 4})

    scripts.open_chat(ALICE, BOB, epoch="E2", seq=3)

    assert [seq for seq, _, _ in scripts.log()] == [4]
    assert scripts.hash(keys.over(CHAT)) == {"2": "new"}
    assert scripts.redis.zrange(keys.revs(CHAT), 0, -1) == [b"2"]


def test_open_chat_restores_read_marks_and_non_messages_of_newest_entries(
    scripts: Scripts,
) -> None:
    """After a loss, own messages count as read and reactions do not count as unread."""
    scripts.open_chat(
        ALICE,
        BOB,
        seq=9,
        ts=900,
        newest={(ALICE, "a"): "5:5:m:dd", (BOB, "b"): "7:7:m:dd", (ALICE, "c"): "8:8:m:dd"},
        uncounted=("9:9:m:dd",),
        deleted=("6:6:m:dd",),
    )

    assert (scripts.head()["s:alice"], scripts.head()["s:bob"]) == ("8", "7")
    assert scripts.redis.zrange(scripts.keys.uncounted(CHAT), 0, -1) == [b"6", b"9"]


def test_open_chat_in_next_epoch_drops_uncounted_seqs_above_the_head(scripts: Scripts) -> None:
    """Other entries will get their seqs."""
    scripts.open_chat(ALICE, BOB, seq=3)
    scripts.redis.zadd(scripts.keys.uncounted(CHAT), {"2": 2, "4": 4})

    scripts.open_chat(ALICE, BOB, epoch="E2", seq=3)

    assert scripts.redis.zrange(scripts.keys.uncounted(CHAT), 0, -1) == [b"2"]


def test_open_chat_in_next_epoch_drops_transitions_and_keeps_joins_and_leaves(
    scripts: Scripts,
) -> None:
    """The directory knows whether the chat is large; until then it is small."""
    turnover = scripts.keys.turnover(CHAT)
    old = {"2:+": "up:4", "3:carol": "in:5:0:1", "4:bob": "out:6:2:1", "5:dave": "in:7"}
    scripts.redis.hset(turnover, mapping=old)

    scripts.open_chat(ALICE, large=2)
    kept = scripts.hash(turnover)
    scripts.open_chat(ALICE, epoch=OTHER_EPOCH)

    assert kept == {field: value for field, value in old.items() if field != "2:+"}
    assert scripts.hash(turnover) == {"3:carol": "in:5", "4:bob": "out:6:2", "5:dave": "in:7"}
