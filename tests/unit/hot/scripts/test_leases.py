"""acquire_lease.lua and release_lease.lua: one holder at a time, increasing fencing tokens."""

from __future__ import annotations

from tests.unit.hot.scripts.script_runner import ScriptRunner

TTL_MS = 5_000


def acquire(scripts: ScriptRunner, owner: str) -> int:
    """Return the fencing token, or 0."""
    token: int = scripts.run(
        "acquire_lease", {"lease": scripts.lease()}, {"owner": owner, "ttl_ms": TTL_MS}
    )
    return token


def release(scripts: ScriptRunner, owner: str) -> int:
    """Return 1 if the owner held the lease."""
    released: int = scripts.run("release_lease", {"lease": scripts.lease()}, {"owner": owner})
    return released


def test_acquire_lease_free_records_owner_token_and_expiry(scripts: ScriptRunner) -> None:
    """The first holder gets token 1 and the full time on Redis's clock."""
    assert acquire(scripts, "a") == 1
    assert scripts.redis.hgetall(scripts.lease()) == {
        "owner": "a",
        "token": "1",
        "until_ms": str(scripts.clock.now_ms + TTL_MS),
    }


def test_acquire_lease_held_by_another_owner_is_refused(scripts: ScriptRunner) -> None:
    """A refused attempt neither takes the lease nor shortens or extends it."""
    acquire(scripts, "a")
    before = scripts.redis.hgetall(scripts.lease())
    scripts.clock.advance_ms(TTL_MS - 1)

    assert acquire(scripts, "b") == 0
    assert scripts.redis.hgetall(scripts.lease()) == before


def test_acquire_lease_expired_goes_to_another_owner_with_a_higher_token(
    scripts: ScriptRunner,
) -> None:
    """A lease that was not renewed is free at its expiry, to the millisecond."""
    acquire(scripts, "a")
    scripts.clock.advance_ms(TTL_MS)

    assert acquire(scripts, "b") == 2
    assert acquire(scripts, "a") == 0


def test_acquire_lease_renewal_keeps_the_token_and_extends_the_time(scripts: ScriptRunner) -> None:
    """A holder that renews in time keeps its token, and others stay out."""
    acquire(scripts, "a")
    scripts.clock.advance_ms(TTL_MS - 1)
    renewed = acquire(scripts, "a")
    scripts.clock.advance_ms(TTL_MS - 1)

    assert renewed == 1
    assert acquire(scripts, "b") == 0


def test_acquire_lease_late_renewal_gets_a_higher_token(scripts: ScriptRunner) -> None:
    """After an expiry the former holder starts over: another could have held the lease."""
    acquire(scripts, "a")
    scripts.clock.advance_ms(TTL_MS)

    assert acquire(scripts, "a") == 2


def test_release_lease_by_another_owner_changes_nothing(scripts: ScriptRunner) -> None:
    """A former holder cannot release the lease of its successor."""
    acquire(scripts, "a")
    scripts.clock.advance_ms(TTL_MS)
    acquire(scripts, "b")

    assert release(scripts, "a") == 0
    assert acquire(scripts, "a") == 0


def test_release_lease_frees_it_at_once_and_keeps_the_token_count(scripts: ScriptRunner) -> None:
    """The next owner does not wait for the expiry, and every token is higher than the last."""
    tokens = []
    for owner in ("a", "b", "a", "a"):
        tokens.append(acquire(scripts, owner))
        assert release(scripts, owner) == 1

    assert tokens == [1, 2, 3, 4]
