"""Rate limits: consume_rate_limits.lua, count_login_attempt.lua and consume_group_quota.lua."""

from __future__ import annotations

from typing import NamedTuple

from chatserver.domain.ids import UserId
from tests.unit.hot.scripts.script_runner import ScriptRunner

ALICE = UserId("alice")
BURST = 5
RATE = "2"  # a token in 500 ms


class Attempt(NamedTuple):
    """The reply of count_login_attempt.lua."""

    allowed: int
    wait_ms: int
    used: int
    has_budget: int
    guesses: int


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


def attempt(
    scripts: ScriptRunner, source: str = "net1", *, account_burst: int = 0, sign: int = 1
) -> Attempt:
    """Count a login attempt on Alice's account; 3 per source, then one a second."""
    reply: list[int] = scripts.run(
        "count_login_attempt",
        {
            "login_attempts": scripts.keys.login_attempts(ALICE, source),
            "guesses": scripts.keys.guesses(ALICE),
        },
        {
            "burst": 3,
            "rate": "1",
            "account_burst": account_burst,
            "account_rate": "0.1",
            "sign": sign,
        },
    )
    return Attempt(*reply)


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


def test_count_login_attempt_refuses_a_source_over_its_limit(scripts: ScriptRunner) -> None:
    """One source is refused with the time to wait; another one is not."""
    replies = [attempt(scripts) for _ in range(4)]

    assert [each.allowed for each in replies] == [1, 1, 1, 0]
    assert [each.used for each in replies] == [0, 1, 2, 3]
    assert replies[3].wait_ms == 1000
    assert attempt(scripts, "net2").allowed == 1

    scripts.clock.advance_ms(1000)
    assert attempt(scripts).allowed == 1


def test_count_login_attempt_right_password_returns_the_token(scripts: ScriptRunner) -> None:
    """Users who know their password are never refused."""
    for _ in range(10):
        assert attempt(scripts).allowed == 1
        attempt(scripts, sign=-1)

    assert attempt(scripts).used == 0


def test_count_login_attempt_unknown_devices_share_the_budget(scripts: ScriptRunner) -> None:
    """Guesses from many networks use up one budget of the account."""
    replies = [attempt(scripts, f"net{number}", account_burst=2) for number in range(3)]

    assert [each.has_budget for each in replies] == [1, 1, 0]
    assert [each.guesses for each in replies] == [0, 1, 2]
    assert attempt(scripts, "known device").has_budget == 1


def test_consume_group_quota_until_none_is_left(scripts: ScriptRunner) -> None:
    """No user joins more groups than allowed; a missing number has to be counted first."""
    room = scripts.keys.room(ALICE)
    unknown = scripts.run("consume_group_quota", items=[{"room": room}])
    scripts.redis.set(room, 2)

    replies = [scripts.run("consume_group_quota", items=[{"room": room}])[0] for _ in range(3)]

    assert unknown == [0]
    assert replies == [1, 1, 0]
    assert scripts.redis.get(room) == "0"
