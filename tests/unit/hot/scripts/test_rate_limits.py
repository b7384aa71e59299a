"""Rate limits: consume_rate_limits.lua and consume_group_quota.lua."""

from __future__ import annotations

from chatserver.domain.ids import UserId
from tests.unit.hot.scripts.script_runner import ScriptRunner

ALICE = UserId("alice")
BURST = 5
RATE = "2"  # a token in 500 ms


def take(scripts: ScriptRunner, wanted: int, owed: int = 0) -> list[int]:
    """Take tokens from Alice's bucket."""
    reply: list[int] = scripts.run(
        "consume_rate_limits",
        items=[
            {
                "limit": scripts.keys.limit("send", ALICE),
                "burst": BURST,
                "rate": RATE,
                "requested": wanted,
                "owed": owed,
            }
        ],
    )
    return reply


def test_consume_rate_limits_returns_at_most_the_tokens_in_the_bucket(
    scripts: ScriptRunner,
) -> None:
    """A burst is allowed once; then tokens come back at the rate."""
    assert take(scripts, 3) == [3, 0]
    assert take(scripts, 3) == [2, 500]
    assert take(scripts, 1) == [0, 500]

    scripts.clock.advance_ms(250)
    assert take(scripts, 1) == [0, 250]
    scripts.clock.advance_ms(250)
    assert take(scripts, 9) == [1, 500]


def test_consume_rate_limits_bucket_holds_no_more_than_a_burst(scripts: ScriptRunner) -> None:
    """Neither a long pause nor returned tokens fill it further."""
    take(scripts, BURST)
    scripts.clock.advance_ms(3_000)  # enough for six tokens
    assert take(scripts, 99)[0] == BURST

    take(scripts, -99)
    assert take(scripts, 99)[0] == BURST


def test_consume_rate_limits_owed_makes_the_bucket_negative(scripts: ScriptRunner) -> None:
    """Cost that is already owed delays the next token."""
    assert take(scripts, 0, owed=BURST + 2) == [0, 1500]

    scripts.clock.advance_ms(1499)
    assert take(scripts, 1)[0] == 0
    scripts.clock.advance_ms(1)
    assert take(scripts, 1)[0] == 1


def test_consume_rate_limits_full_bucket_expires(scripts: ScriptRunner) -> None:
    """A bucket is kept in memory only until it is full again."""
    take(scripts, 2)

    scripts.clock.advance_ms(1_000)
    assert scripts.redis.exists(scripts.keys.limit("send", ALICE))

    scripts.clock.advance_ms(1_001)
    assert not scripts.redis.exists(scripts.keys.limit("send", ALICE))


def test_consume_group_quota_until_none_is_left(scripts: ScriptRunner) -> None:
    """No user joins more groups than allowed; a missing number has to be counted first."""
    room = scripts.keys.room(ALICE)
    unknown = scripts.run("consume_group_quota", items=[{"room": room}])
    scripts.redis.set(room, 2)

    replies = [scripts.run("consume_group_quota", items=[{"room": room}])[0] for _ in range(3)]

    assert unknown == [0]
    assert replies == [1, 1, 0]
    assert scripts.redis.get(room) == "0"
