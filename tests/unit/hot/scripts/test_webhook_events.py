"""move_webhook_event.lua and requeue_webhook_event.lua: an event is in one place at a time."""

from __future__ import annotations

from chatserver.features.webhooks.keys import WebhookKeys
from tests.unit.hot.scripts.script_runner import ScriptRunner

KEYS = WebhookKeys(1)

EVENT = '{"type":"message"}'
PACKED = f"1 {EVENT}"


def move(scripts: ScriptRunner, entry: str, due_ms: int) -> int:
    """Move an event to the retry set, or to the dead letters."""
    moved: int = scripts.run(
        "move_webhook_event",
        {
            "hooks": KEYS.hooks(0),
            "hooks_late": KEYS.hooks_late(0),
            "hooks_dead": KEYS.hooks_dead(0),
        },
        {
            "entry": entry,
            "attempts": 1,
            "event": EVENT,
            "packed": PACKED,
            "due_ms": due_ms,
            "why": "HTTP 500",
            "dead_max": 100,
        },
    )
    return moved


def requeue(scripts: ScriptRunner) -> int:
    """Move an event whose retry is due back to the stream."""
    moved: int = scripts.run(
        "requeue_webhook_event",
        {"hooks": KEYS.hooks(0), "hooks_late": KEYS.hooks_late(0)},
        {"packed": PACKED, "attempts": 1, "event": EVENT},
    )
    return moved


def counts(scripts: ScriptRunner) -> tuple[int, int, int]:
    """Return the number of events to deliver, to retry and dead."""
    return (
        scripts.redis.xlen(KEYS.hooks(0)),
        scripts.redis.zcard(KEYS.hooks_late(0)),
        scripts.redis.xlen(KEYS.hooks_dead(0)),
    )


def test_move_webhook_event_to_the_retry_set_once(scripts: ScriptRunner) -> None:
    """Two processes that failed to deliver an event cause one retry."""
    entry = scripts.redis.xadd(KEYS.hooks(0), {"n": 0, "e": EVENT})

    assert move(scripts, entry, due_ms=500) == 1
    assert move(scripts, entry, due_ms=900) == 0
    late = scripts.redis.zrange(KEYS.hooks_late(0), 0, -1, withscores=True)
    assert late == [(PACKED, 500.0)]
    assert counts(scripts) == (0, 1, 0)


def test_move_webhook_event_to_the_dead_letters_once(scripts: ScriptRunner) -> None:
    """A dead letter has the attempts and the reason; an erased event leaves none."""
    entry = scripts.redis.xadd(KEYS.hooks(0), {"n": 0, "e": EVENT})

    assert move(scripts, entry, due_ms=0) == 1
    assert move(scripts, entry, due_ms=0) == 0
    ((_, fields),) = scripts.redis.xrange(KEYS.hooks_dead(0))
    assert fields == {"n": "1", "why": "HTTP 500", "e": EVENT}
    assert counts(scripts) == (0, 0, 1)


def test_requeue_webhook_event_once(scripts: ScriptRunner) -> None:
    """Two processes that find the same retry deliver the event once."""
    scripts.redis.zadd(KEYS.hooks_late(0), {PACKED: 500})

    assert requeue(scripts) == 1
    assert requeue(scripts) == 0
    ((_, fields),) = scripts.redis.xrange(KEYS.hooks(0))
    assert fields == {"n": "1", "e": EVENT}
    assert counts(scripts) == (1, 0, 0)
