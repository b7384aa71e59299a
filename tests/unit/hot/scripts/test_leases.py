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


def test_acquire_lease_free_records_owner_token_and_expiry(scripts: ScriptRunner) -> None:
    """The first holder gets token 1 and the full time on Redis's clock."""
    assert acquire(scripts, "a") == 1
    assert scripts.redis.hgetall(scripts.lease()) == {
        "owner": "a",
        "token": "1",
        "until_ms": str(scripts.clock.now_ms + TTL_MS),
    }
