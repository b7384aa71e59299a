"""The push scripts: a push is sent at most once, and a chat stays due until all are sent."""

from __future__ import annotations

from typing import Any

from chatserver.domain.ids import ChatId, UserId
from chatserver.features.push.keys import NotificationKeys
from tests.unit.hot.scripts.script_runner import ScriptRunner

KEYS = NotificationKeys(1)

CHAT, OTHER = ChatId("c1"), ChatId("c2")
ALICE = UserId("alice")
TOKEN, OUTDATED_TOKEN = 7, 6
TTL_S = 3600
DELAY_MS = 2_000
HOLD_MS = 30_000


def claim(scripts: ScriptRunner, seq: int, *, device: str = "d1", is_retry: bool = False) -> int:
    """Claim the push of a message to a device of Alice."""
    claimed: int = scripts.run(
        "claim_push",
        {"pushed": KEYS.pushed(ALICE), "box": scripts.keys.box(ALICE)},
        {
            "field": f"{device}:{CHAT}",
            "chat_id": CHAT,
            "seq": seq,
            "ts": seq * 1000,
            "ttl_s": TTL_S,
            "is_retry": "1" if is_retry else "",
        },
    )
    return claimed


def record(
    scripts: ScriptRunner,
    upto: str,
    chats: dict[ChatId, int],
    token: int = TOKEN,
    delay_ms: int = DELAY_MS,
) -> int:
    """Record chats with their first new seq, and the scan up to a backlog entry."""
    recorded: int = scripts.run(
        "record_due_pushes",
        {
            "lease": scripts.lease(),
            "checkpoint": scripts.keys.checkpoint(0),
            "backlog": scripts.keys.backlog(0),
            "due": KEYS.due(0),
            "since": KEYS.since(0),
        },
        {"token": token, "id": upto, "delay_ms": delay_ms},
        [{"chat": chat, "seq": seq} for chat, seq in chats.items()],
    )
    return recorded


def claim_due(scripts: ScriptRunner, limit: int = 10, token: int = TOKEN) -> list[Any]:
    """Claim chats whose pushes are due."""
    claimed: list[Any] = scripts.run(
        "claim_due_pushes",
        {"lease": scripts.lease(), "due": KEYS.due(0), "since": KEYS.since(0)},
        {"token": token, "hold_ms": HOLD_MS, "limit": limit},
    )
    return claimed


def finish(scripts: ScriptRunner, time: str, next_seq: int, delay_ms: int = -1) -> int:
    """Finish a chat that was claimed in the current epoch."""
    scripts.redis.hset(scripts.keys.epoch(0), "epoch", "E1")
    removed: int = scripts.run(
        "finish_due_push",
        {"due": KEYS.due(0), "since": KEYS.since(0), "epoch": scripts.keys.epoch(0)},
        {"chat": CHAT, "time": time, "next": next_seq, "delay_ms": delay_ms, "epoch": "E1"},
    )
    return removed


def due(scripts: ScriptRunner) -> dict[str, float]:
    """Return the time in ms from now at which each chat is due."""
    found = scripts.redis.zrange(KEYS.due(0), 0, -1, withscores=True)
    return {chat: time_ms - scripts.clock.now_ms for chat, time_ms in found}


def test_claim_push_of_a_read_message_is_refused(scripts: ScriptRunner) -> None:
    """A message that was read on one device is not pushed to another, not even as a retry."""
    claim(scripts, 5)
    scripts.redis.hset(scripts.keys.box(ALICE), f"r:{CHAT}", 5)

    assert claim(scripts, 5, device="d2") == 0
    assert claim(scripts, 5, is_retry=True) == 0
    assert claim(scripts, 6, device="d2") == 1


def test_claim_push_expires(scripts: ScriptRunner) -> None:
    """Claims do not stay in memory."""
    claim(scripts, 5)
    assert scripts.redis.ttl(KEYS.pushed(ALICE)) == TTL_S

    scripts.clock.advance_ms(TTL_S * 1000 + 1)

    assert scripts.redis.exists(KEYS.pushed(ALICE)) == 0


def test_record_due_pushes_without_the_lease_records_nothing(scripts: ScriptRunner) -> None:
    """A worker that lost its lease does not move the scan of its successor."""
    scripts.hold_lease(TOKEN)

    assert record(scripts, "10-0", {CHAT: 3}, token=OUTDATED_TOKEN) == 0
    assert scripts.redis.keys("*") == [scripts.lease()]


def test_record_due_pushes_records_time_and_first_seq(scripts: ScriptRunner) -> None:
    """Pushes are due after the delay, from the first new message on."""
    scripts.hold_lease(TOKEN)

    assert record(scripts, "10-0", {CHAT: 3, OTHER: 8}) == 1
    assert due(scripts) == {CHAT: DELAY_MS, OTHER: DELAY_MS}
    assert scripts.redis.hgetall(KEYS.since(0)) == {CHAT: "3", OTHER: "8"}
    scanned = {"told": "10-0", "told_ms": str(scripts.clock.now_ms)}
    assert scripts.redis.hgetall(scripts.keys.checkpoint(0)) == scanned


def test_record_due_pushes_of_a_waiting_chat_keeps_its_time(scripts: ScriptRunner) -> None:
    """A chat with continuous new messages is pushed in time too."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(500)

    record(scripts, "11-0", {CHAT: 4})

    assert due(scripts) == {CHAT: DELAY_MS - 500}
    assert scripts.redis.hget(KEYS.since(0), CHAT) == "3"


def test_record_due_pushes_of_a_claimed_chat_makes_it_due_earlier(scripts: ScriptRunner) -> None:
    """A message that arrives during the processing does not wait for the end of the claim."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    claim_due(scripts)

    record(scripts, "11-0", {CHAT: 4})

    assert due(scripts) == {CHAT: DELAY_MS}


def test_record_due_pushes_trims_entries_that_are_persisted_and_scanned(
    scripts: ScriptRunner,
) -> None:
    """The backlog keeps entries that the persist worker or the scan still has to read."""
    scripts.hold_lease(TOKEN)
    backlog = scripts.keys.backlog(0)
    for entry in ("10-0", "10-1", "11-0", "12-0"):
        scripts.redis.xadd(backlog, {"c": CHAT}, id=entry)

    record(scripts, "10-0", {})
    assert len(scripts.entry_ids(backlog)) == 4  # nothing is persisted

    scripts.redis.hset(scripts.keys.checkpoint(0), "id", "11-0")
    record(scripts, "10-0", {})
    assert scripts.entry_ids(backlog) == ["10-1", "11-0", "12-0"]

    record(scripts, "12-0", {})
    assert scripts.entry_ids(backlog) == ["12-0"]


def test_claim_due_pushes_returns_only_due_chats(scripts: ScriptRunner) -> None:
    """A chat is claimed at its time, not before."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS - 1)
    early = claim_due(scripts)
    scripts.clock.advance_ms(1)

    assert early == []
    assert claim_due(scripts) == [CHAT, "3", str(scripts.clock.now_ms + HOLD_MS - 0.5)]


def test_claim_due_pushes_claimed_chat_is_due_again_after_the_hold(scripts: ScriptRunner) -> None:
    """If the process stops, another one claims the chat again."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    claim_due(scripts)
    scripts.clock.advance_ms(HOLD_MS - 1)
    held = claim_due(scripts)
    scripts.clock.advance_ms(1)

    assert held == []
    assert claim_due(scripts)[:2] == [CHAT, "3"]


def test_claim_due_pushes_returns_at_most_the_limit(scripts: ScriptRunner) -> None:
    """The chat that is due first comes first; the other stays due."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {OTHER: 1})
    scripts.clock.advance_ms(1)
    record(scripts, "11-0", {CHAT: 1})
    scripts.clock.advance_ms(DELAY_MS)

    assert claim_due(scripts, limit=1)[0] == OTHER
    assert claim_due(scripts, limit=1)[0] == CHAT


def test_claim_due_pushes_without_the_lease_claims_nothing(scripts: ScriptRunner) -> None:
    """A worker that lost its lease does not delay the chats."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)

    assert claim_due(scripts, token=OUTDATED_TOKEN) == []
    assert due(scripts) == {CHAT: 0}


def test_finish_due_push_removes_the_chat(scripts: ScriptRunner) -> None:
    """A finished chat is not due until its next message."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    _, _, time = claim_due(scripts)

    assert finish(scripts, time, 4) == 1
    assert due(scripts) == {}
    assert scripts.redis.hgetall(KEYS.since(0)) == {}


def test_finish_due_push_keeps_a_chat_with_a_message_due_after_the_claim(
    scripts: ScriptRunner,
) -> None:
    """The delay may be longer than what is left of the claim."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    _, _, time = claim_due(scripts)
    record(scripts, "11-0", {CHAT: 4}, delay_ms=2 * HOLD_MS)

    assert finish(scripts, time, 4) == 0
    assert due(scripts) == {CHAT: 2 * HOLD_MS}
    assert scripts.redis.hget(KEYS.since(0), CHAT) == "4"


def test_finish_due_push_keeps_a_chat_with_a_newer_message(scripts: ScriptRunner) -> None:
    """A message that was committed after the claim is pushed next, without the older ones."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    _, _, time = claim_due(scripts)
    record(scripts, "11-0", {CHAT: 4})

    assert finish(scripts, time, 4) == 0
    assert due(scripts) == {CHAT: DELAY_MS}
    assert scripts.redis.hget(KEYS.since(0), CHAT) == "4"


def test_finish_due_push_with_a_delay_makes_the_chat_due_once_more(scripts: ScriptRunner) -> None:
    """Pushes that have to be retried keep the chat; the first seq never moves back."""
    scripts.hold_lease(TOKEN)
    record(scripts, "10-0", {CHAT: 3})
    scripts.clock.advance_ms(DELAY_MS)
    _, _, time = claim_due(scripts)

    assert finish(scripts, time, 2, delay_ms=5_000) == 0
    assert due(scripts) == {CHAT: 5_000}
    assert scripts.redis.hget(KEYS.since(0), CHAT) == "3"


def test_find_push_needs_returns_devices_foreground_and_read_mark(scripts: ScriptRunner) -> None:
    """No push is sent to users without devices or to a client in the foreground."""
    users = {name: UserId(name) for name in ("none", "away", "unknown", "online", "crashed")}
    for name, gateway in (("away", "gw1"), ("online", "gw1"), ("crashed", "gw2")):
        state = "away" if name == "away" else "online"
        scripts.redis.hset(scripts.keys.seen(users[name]), f"g:{gateway}", state)
    for name in ("none", "away", "online", "crashed"):
        scripts.redis.set(KEYS.pushing(users[name]), "0" if name == "none" else "1")
    scripts.redis.hset(scripts.keys.box(users["away"]), f"r:{CHAT}", 12)
    now_ms = scripts.clock.now_ms
    scripts.redis.zadd(scripts.keys.gateways(0), {"gw1": now_ms + 1, "gw2": now_ms})

    reply = scripts.run(
        "find_push_needs",
        {"gateways": scripts.keys.gateways(0)},
        {"chat_id": CHAT},
        [
            {
                "seen": scripts.keys.seen(user),
                "box": scripts.keys.box(user),
                "pushing": KEYS.pushing(user),
            }
            for user in users.values()
        ],
    )

    states = dict(zip(users, zip(reply[::2], reply[1::2], strict=True), strict=True))
    assert states == {
        "none": (0, 0),
        "away": (1, 12),
        "unknown": (2, 0),
        "online": (3, 0),
        "crashed": (1, 0),
    }
