"""revoke_tokens.lua, register_sessions.lua and the presence scripts."""

from __future__ import annotations

from typing import Any

from chatserver.domain.ids import UserId
from tests.unit.hot.scripts.script_runner import ScriptRunner

ALICE = UserId("alice")
TOKEN_TTL_S = 900
ALIVE_MS = 10_000
TTL_MS = 60_000


def revoke(scripts: ScriptRunner, *, before: int = 0, banned: str = "", logins: str = "") -> None:
    """Write revocation marks of Alice."""
    scripts.run(
        "revoke_tokens",
        {"revoked": scripts.keys.revoked(ALICE)},
        {"before": before, "banned": banned, "ttl_s": TOKEN_TTL_S, "logins": logins},
    )


def revoked(scripts: ScriptRunner) -> dict[str, str]:
    """Return the revocation marks."""
    marks: dict[str, str] = scripts.redis.hgetall(scripts.keys.revoked(ALICE))
    return marks


def extend(scripts: ScriptRunner, gateway: str) -> int:
    """Extend the expiry of a gateway."""
    reply: int = scripts.run(
        "extend_gateway_expiry",
        {"gateways": scripts.keys.gateways(0)},
        {"gateway": gateway, "ttl_ms": ALIVE_MS},
    )
    return reply


def register(
    scripts: ScriptRunner,
    session: str,
    device: str,
    *,
    gateway: str = "gw1",
    started: str | int = 0,
    sessions_max: int = 10,
) -> tuple[str, list[tuple[str, str]]]:
    """Register a session of Alice; return its start and the replaced sessions."""
    start, count, *replaced = scripts.run(
        "register_sessions",
        {"gateways": scripts.keys.gateways(0)},
        {"gateway": gateway, "sessions_max": sessions_max, "ttl_ms": TTL_MS},
        [
            {
                "seen": scripts.keys.seen(ALICE),
                "session": session,
                "device": device,
                "started": started,
            }
        ],
    )
    pairs = list(zip(replaced[::2], replaced[1::2], strict=True))
    assert count == len(pairs)
    return start, pairs


def publish(scripts: ScriptRunner, gateway: str, state: str, ago_ms: int = 0) -> dict[str, Any]:
    """Publish Alice's presence on a gateway."""
    changed, after, last, version, subscribed = scripts.run(
        "publish_presence",
        {"gateways": scripts.keys.gateways(0)},
        {"gateway": gateway, "alive_ms": ALIVE_MS, "ttl_ms": TTL_MS},
        [
            {
                "seen": scripts.keys.seen(ALICE),
                "watched": scripts.keys.watched(ALICE),
                "state": state,
                "ago_ms": ago_ms,
            }
        ],
    )
    return {
        "changed": changed,
        "state": after,
        "last_ms_ago": scripts.clock.now_ms - int(last),
        "version": int(version),
        "gateways": subscribed,
    }


def subscribe(scripts: ScriptRunner, gateway: str, ttl_ms: int = TTL_MS) -> list[str]:
    """Subscribe a gateway to Alice's presence."""
    reply: list[str] = scripts.run(
        "subscribe_presence",
        {"gateways": scripts.keys.gateways(0)},
        {"gateway": gateway, "alive_ms": ALIVE_MS, "ttl_ms": ttl_ms},
        [{"seen": scripts.keys.seen(ALICE), "watched": scripts.keys.watched(ALICE)}],
    )
    return reply


def test_revoke_tokens_time_never_moves_back(scripts: ScriptRunner) -> None:
    """A late call does not make revoked tokens valid again."""
    for before in (100, 90, 0):
        revoke(scripts, before=before)
    assert revoked(scripts) == {"before": "100"}

    revoke(scripts, before=1000)
    assert revoked(scripts) == {"before": "1000"}


def test_revoke_tokens_marks_expire_with_the_tokens(scripts: ScriptRunner) -> None:
    """After the lifetime of a token no revoked token is left."""
    revoke(scripts, before=100, logins="l1,l2")
    assert revoked(scripts) == {"before": "100", "s:l1": "1", "s:l2": "1"}

    scripts.clock.advance_ms(TOKEN_TTL_S * 1000)
    assert revoked(scripts)

    scripts.clock.advance_ms(1)
    assert revoked(scripts) == {}


def test_revoke_tokens_ban_stays_until_it_ends(scripts: ScriptRunner) -> None:
    """A ban has no expiry, also after other marks; when it ends, the marks expire."""
    revoke(scripts, banned="1")
    revoke(scripts, logins="l1")
    assert scripts.redis.ttl(scripts.keys.revoked(ALICE)) == -1

    revoke(scripts, banned="0")
    assert revoked(scripts) == {"s:l1": "1"}
    assert scripts.redis.ttl(scripts.keys.revoked(ALICE)) == TOKEN_TTL_S


def test_register_sessions_in_the_same_millisecond_start_one_after_the_other(
    scripts: ScriptRunner,
) -> None:
    """The later session wins even if the clock stands still or was set back."""
    first, _ = register(scripts, "s9", "phone")
    scripts.clock.advance_ms(-1000)

    second, replaced = register(scripts, "s1", "phone")

    assert int(second) == int(first) + 1
    assert replaced == [("s9", "gw1")]


def test_extend_gateway_expiry_reports_an_expired_gateway(scripts: ScriptRunner) -> None:
    """A late gateway gets 0: other processes may have treated it as down."""
    assert extend(scripts, "gw1") == 0
    scripts.clock.advance_ms(ALIVE_MS - 1)
    assert extend(scripts, "gw1") == 1
    scripts.clock.advance_ms(ALIVE_MS)
    assert extend(scripts, "gw1") == 0


def test_publish_presence_ignores_an_expired_gateway(scripts: ScriptRunner) -> None:
    """Users of a gateway that is down are offline, last seen when it was alive."""
    extend(scripts, "gw1")
    publish(scripts, "gw1", "online")
    scripts.clock.advance_ms(ALIVE_MS + 5_000)
    extend(scripts, "gw2")

    reply = publish(scripts, "gw2", "offline", ago_ms=60_000)

    assert (reply["changed"], reply["state"], reply["last_ms_ago"]) == (0, "offline", 15_000)


def test_publish_presence_returns_subscribed_gateways_until_they_expire(
    scripts: ScriptRunner,
) -> None:
    """Only gateways that renewed their subscription are notified."""
    subscribe(scripts, "gw8", ttl_ms=1_000)
    subscribe(scripts, "gw9", ttl_ms=1_001)

    assert publish(scripts, "gw1", "online")["gateways"] == "gw8,gw9"
    scripts.clock.advance_ms(1_000)
    assert publish(scripts, "gw1", "online")["gateways"] == "gw9"


def test_subscribe_presence_returns_the_state(scripts: ScriptRunner) -> None:
    """The state includes the expiry of the user's gateway."""
    extend(scripts, "gw1")
    published = publish(scripts, "gw1", "online")
    online = subscribe(scripts, "gw9")
    scripts.clock.advance_ms(ALIVE_MS)
    offline = subscribe(scripts, "gw9", ttl_ms=0)

    last = version = str(published["version"])
    assert online == ["online", last, version]
    assert offline == ["offline", last, version]
    assert scripts.redis.exists(scripts.keys.watched(ALICE)) == 0
