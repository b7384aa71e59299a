"""The backlog scripts: nothing is trimmed that is not persisted and scanned for pushes."""

from __future__ import annotations

from chatserver.domain.ids import ChatId
from chatserver.domain.messages import REF_TTL_S
from chatserver.features.companions.keys import CompanionKeys
from chatserver.hot.chats.chat_log import parse_stored
from tests.unit.hot.scripts.script_runner import START_MS, ScriptRunner

KEYS = CompanionKeys(1)

CHAT = ChatId("c1")
TOKEN, OUTDATED_TOKEN = 7, 6
EPOCH = "E1"
LATE_MS = 60_000
ENTRIES = [f"{START_MS}-{number}" for number in range(5)]


def move(scripts: ScriptRunner, upto: str, *, token: int = TOKEN) -> int:
    """Move the checkpoint to a backlog entry."""
    ms, number = upto.split("-")
    moved: int = scripts.run(
        "move_checkpoint",
        {
            "lease": scripts.lease(),
            "epoch": scripts.keys.epoch(0),
            "checkpoint": scripts.keys.checkpoint(0),
            "backlog": scripts.keys.backlog(0),
            "progress": scripts.keys.progress(0),
        },
        {"token": token, "epoch": EPOCH, "id": upto, "next": f"{ms}-{int(number) + 1}"},
    )
    return moved


def record_persisted_seqs(
    scripts: ScriptRunner, ahead: str, upto: int, token: int = TOKEN
) -> list[int]:
    """Record that the chat is persisted beyond the checkpoint."""
    persisting = scripts.run(
        "record_persisting_id",
        {"lease": scripts.lease(), "checkpoint": scripts.keys.checkpoint(0)},
        {"token": token, "id": ahead},
    )
    progress = scripts.run(
        "record_persisted_seqs",
        {
            "lease": scripts.lease(),
            "epoch": scripts.keys.epoch(0),
            "progress": scripts.keys.progress(0),
        },
        {"token": token, "epoch": EPOCH},
        [{"chat": CHAT, "upto": upto}],
    )
    return [persisting, progress]


def fill(scripts: ScriptRunner) -> None:
    """Put the entries into the backlog; the lease holder has `TOKEN`."""
    scripts.hold_lease(TOKEN)
    scripts.redis.hset(scripts.keys.epoch(0), "epoch", EPOCH)
    for entry in ENTRIES:
        scripts.redis.xadd(scripts.keys.backlog(0), {"c": CHAT}, id=entry)


def scan(scripts: ScriptRunner, upto: str) -> None:
    """Record that the backlog was scanned for pushes up to an entry, now."""
    position = {"told": upto, "told_ms": scripts.clock.now_ms}
    scripts.redis.hset(scripts.keys.checkpoint(0), mapping=position)


def remaining(scripts: ScriptRunner) -> list[str]:
    """Return the entries that are left in the backlog."""
    return scripts.entry_ids(scripts.keys.backlog(0))


def checkpoint(scripts: ScriptRunner, field: str) -> str | None:
    """Return a field of the checkpoint."""
    value: str | None = scripts.redis.hget(scripts.keys.checkpoint(0), field)
    return value


def test_move_checkpoint_keeps_entries_not_scanned_for_pushes(scripts: ScriptRunner) -> None:
    """The scan for pushes still finds every entry that it has not read."""
    fill(scripts)
    scan(scripts, ENTRIES[0])

    assert move(scripts, ENTRIES[3]) == 1
    assert checkpoint(scripts, "id") == ENTRIES[3]
    assert remaining(scripts) == ENTRIES[1:]


def test_move_checkpoint_behind_the_scan_keeps_entries_not_persisted(
    scripts: ScriptRunner,
) -> None:
    """Entries that were scanned for pushes but are not persisted yet are kept."""
    fill(scripts)
    scan(scripts, ENTRIES[4])

    move(scripts, ENTRIES[1])

    assert remaining(scripts) == ENTRIES[2:]


def test_move_checkpoint_does_not_wait_for_a_scan_that_has_stopped(scripts: ScriptRunner) -> None:
    """Without a push worker the backlog does not fill the memory."""
    fill(scripts)
    scan(scripts, ENTRIES[0])
    scripts.clock.advance_ms(LATE_MS)
    move(scripts, ENTRIES[2])
    before_deadline = remaining(scripts)
    scripts.clock.advance_ms(1)
    move(scripts, ENTRIES[3])

    assert before_deadline == ENTRIES[1:]
    assert remaining(scripts) == ENTRIES[4:]


def test_move_checkpoint_keeps_entries_for_a_slow_scan_for_a_minute(scripts: ScriptRunner) -> None:
    """A scan that is far behind loses the oldest entries only."""
    fill(scripts)
    recent = f"{START_MS + LATE_MS}-1"
    newest = f"{START_MS + LATE_MS + 1}-0"
    for entry in (recent, newest):
        scripts.redis.xadd(scripts.keys.backlog(0), {"c": CHAT}, id=entry)
    scan(scripts, f"{START_MS - 1}-0")

    move(scripts, recent)
    assert remaining(scripts) == [*ENTRIES, recent, newest]

    move(scripts, newest)
    assert remaining(scripts) == [recent, newest]


def test_record_persisted_seqs_without_the_lease_records_nothing(scripts: ScriptRunner) -> None:
    """A worker that lost its lease cannot record progress for its successor."""
    fill(scripts)

    assert record_persisted_seqs(scripts, ENTRIES[3], 12, token=OUTDATED_TOKEN) == [0, 0]
    assert scripts.redis.exists(scripts.keys.progress(0)) == 0
    assert checkpoint(scripts, "ahead") is None


def test_record_pending_responses_records_each_entry_once(scripts: ScriptRunner) -> None:
    """Two workers scan the same backlog; a message is recorded for one AI response."""

    def record(*entries: tuple[str, int, int], upto: str) -> int:
        new: int = scripts.run(
            "record_pending_responses",
            {"checkpoint": scripts.keys.checkpoint(0), "asked": KEYS.pending(0)},
            {"upto": upto},
            [
                {
                    "asking": KEYS.response(CHAT),
                    "chat": CHAT,
                    "id": entry,
                    "newest": newest,
                    "changed": changed,
                }
                for entry, newest, changed in entries
            ],
        )
        return new

    first = record(("10-0", 4, 0), ("10-1", 6, 3), upto="10-1")
    second = record(("10-0", 4, 0), ("10-1", 6, 3), ("11-0", 5, 2), upto="11-0")
    third = record(("9-0", 9, 1), upto="9-0")

    assert (first, second, third) == (2, 1, 0)
    assert scripts.redis.hgetall(KEYS.response(CHAT)) == {
        "newest": "6",
        "changed": "2",
    }
    assert checkpoint(scripts, "heard") == "11-0"


def trim(scripts: ScriptRunner, upto: int, log_max: int, dead: str = "") -> int:
    """Record that the chat is persisted up to a seq, and trim its log."""
    gone: int = scripts.run(
        "trim_persisted",
        args={"log_max": log_max, "ref_ttl_s": REF_TTL_S, "epoch": "E1"},
        items=[
            {
                "chat": scripts.keys.chat(CHAT),
                "log": scripts.keys.log(CHAT),
                "over": scripts.keys.over(CHAT),
                "revs": scripts.keys.revs(CHAT),
                "upto": upto,
                "dead": dead,
            }
        ],
    )
    return gone


def test_chat_keeps_the_newest_dead_letters(scripts: ScriptRunner) -> None:
    """A limited number, all of them complete."""
    scripts.redis.hset(scripts.keys.chat(CHAT), mapping={"seq": 1_000})
    for seq in range(1, 1_001, 2):
        trim(scripts, seq, 10, f"{seq - 1},{seq}" if seq > 1 else "1")
        trim(scripts, seq, 10, f"{seq}")  # repeated

    fields = scripts.redis.hgetall(scripts.keys.chat(CHAT))
    upto, dead = parse_stored(fields["stored"].encode(), fields["dead"].encode())
    assert upto == 999
    assert len(dead) >= 200 and set(range(1_000 - len(dead), 1_000)) == dead


def test_trim_persisted_keeps_the_newest_entries(scripts: ScriptRunner) -> None:
    """Persisted entries stay in the log up to its limit; changes leave with their entry."""
    scripts.redis.hset(scripts.keys.chat(CHAT), "seq", 10)
    for seq in range(1, 11):
        scripts.redis.xadd(scripts.keys.log(CHAT), {"1": "m"}, id=f"{seq}-0")
    scripts.redis.hset(scripts.keys.over(CHAT), mapping={"1": "old", "2": "new"})
    scripts.redis.zadd(scripts.keys.revs(CHAT), {"1": 6, "2": 8})

    assert trim(scripts, 10, log_max=3) == 7
    assert scripts.entry_ids(scripts.keys.log(CHAT)) == ["8-0", "9-0", "10-0"]
    assert scripts.redis.hgetall(scripts.keys.over(CHAT)) == {"2": "new"}
    assert scripts.redis.zrange(scripts.keys.revs(CHAT), 0, -1) == ["2"]
