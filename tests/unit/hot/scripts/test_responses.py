"""The AI response scripts: each message is answered once, within the user's tokens."""

from __future__ import annotations

from chatserver.domain.ids import ChatId, UserId
from chatserver.features.companions.keys import CompanionKeys
from tests.unit.hot.scripts.script_runner import ScriptRunner

KEYS = CompanionKeys(1)

CHAT, OTHER = ChatId("c1"), ChatId("c2")
ALICE = UserId("alice")
TOKEN, OUTDATED_TOKEN = 7, 6
HOLD_MS = 60_000


def request(scripts: ScriptRunner, **seqs: int) -> None:
    """Record pending work of the session."""
    scripts.redis.hset(KEYS.response(CHAT), mapping=seqs)
    scripts.redis.zadd(KEYS.pending(0), {CHAT: 1})


def start(scripts: ScriptRunner, token: int = TOKEN) -> list[int]:
    """Start or resume the AI response."""
    scripts.hold_lease(TOKEN)
    reply: list[int] = scripts.run(
        "start_response",
        {"lease": scripts.lease(), "asking": KEYS.response(CHAT)},
        {"token": token},
    )
    return reply


def finish(scripts: ScriptRunner, seq: int, changed: int = 0) -> int:
    """Finish the AI response to a message."""
    reply: int = scripts.run(
        "finish_response",
        {
            "asking": KEYS.response(CHAT),
            "asked": KEYS.pending(0),
        },
        {"chat": CHAT, "seq": seq, "changed": changed},
    )
    return reply


def stop(scripts: ScriptRunner) -> int:
    """Request that the AI response stops."""
    reply: int = scripts.run("stop_response", {"asking": KEYS.response(CHAT)})
    return reply


def reserve(
    scripts: ScriptRunner,
    requested: int,
    *,
    chat: ChatId = CHAT,
    response: str = "t1",
    responses_max: int = 9,
) -> list[int]:
    """Reserve tokens of Alice. The daily limit is 100."""
    reply: list[int] = scripts.run(
        "reserve_response",
        {"tokens": KEYS.tokens(ALICE)},
        {
            "chat": chat,
            "response": response,
            "requested": requested,
            "responses_max": responses_max,
            "tokens_max": 100,
            "hold_ms": HOLD_MS,
        },
    )
    return reply


def charge(scripts: ScriptRunner, spent: int, *, response: str = "t1") -> int:
    """Count the tokens that an AI response used."""
    reply: int = scripts.run(
        "charge_response",
        {"tokens": KEYS.tokens(ALICE)},
        {"chat": CHAT, "response": response, "spent": spent},
    )
    return reply


def tokens_left(scripts: ScriptRunner) -> list[int]:
    """Check Alice's tokens without a reservation."""
    return reserve(scripts, 0, chat=ChatId("check"), response="")


def test_start_response_resumes_the_same_message(scripts: ScriptRunner) -> None:
    """After a crash the started response is finished before a newer message is answered."""
    request(scripts, newest=4)
    first = start(scripts)
    request(scripts, newest=6)

    assert first == [4, 0, 0, 0]
    assert start(scripts) == [4, 0, 0, 0]


def test_start_response_without_the_lease_starts_nothing(scripts: ScriptRunner) -> None:
    """A worker that lost its lease does not answer."""
    request(scripts, newest=4)

    assert start(scripts, token=OUTDATED_TOKEN) == []
    assert scripts.redis.hget(KEYS.response(CHAT), "begun") is None


def test_finish_response_removes_the_session(scripts: ScriptRunner) -> None:
    """An answered session has no pending work."""
    request(scripts, newest=4)
    start(scripts)

    assert finish(scripts, 4) == 0
    assert scripts.redis.exists(KEYS.response(CHAT), KEYS.pending(0)) == 0


def test_finish_response_continues_with_a_newer_message(scripts: ScriptRunner) -> None:
    """A message that arrived during the response is next."""
    request(scripts, newest=4)
    start(scripts)
    request(scripts, newest=6, changed=3)

    assert finish(scripts, 4) == 1
    assert start(scripts) == [6, 0, 3, 0]
    assert finish(scripts, 6, changed=2) == 1  # the change was not handled
    assert finish(scripts, 6, changed=3) == 0


def test_finish_response_of_an_older_message_changes_nothing(scripts: ScriptRunner) -> None:
    """A late worker does not finish the response of another one."""
    request(scripts, newest=6, tries=1)
    start(scripts)

    assert finish(scripts, 4) == 1
    pending = {"newest": "6", "begun": "6", "tries": "1"}
    assert scripts.redis.hgetall(KEYS.response(CHAT)) == pending


def test_stop_response_applies_to_the_current_message_only(scripts: ScriptRunner) -> None:
    """An earlier stop does not affect the next message."""
    assert stop(scripts) == 0
    request(scripts, newest=4)
    start(scripts)
    request(scripts, newest=6)

    assert stop(scripts) == 4
    assert start(scripts)[1] == 4
    finish(scripts, 4)
    assert start(scripts) == [6, 0, 0, 0]


def test_reserve_response_counts_reservations_and_used_tokens(scripts: ScriptRunner) -> None:
    """No user gets more tokens than the day has, not even with several responses at once."""
    assert reserve(scripts, 70) == [0, 100]
    assert reserve(scripts, 30, chat=OTHER, response="t2") == [0, 30]
    assert tokens_left(scripts)[0] == 2

    charge(scripts, 10)
    assert tokens_left(scripts) == [0, 60]
