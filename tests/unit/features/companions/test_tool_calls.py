"""The idempotency key of a tool call."""

from __future__ import annotations

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.features.companions.model import CompanionSession
from chatserver.features.companions.worker.tool_calls import call_key

SESSION = CompanionSession(
    UserId("lin"), CompanionId(UserId("ai-ada")), ChatId("01KAJ5W3N0TBJ8QW6X1V7ZC2YD"), 1, 0
)


def test_same_call_of_a_repeated_response_has_the_same_key() -> None:
    """The id from the provider and the order of the fields do not matter."""
    key = call_key(SESSION, 7, 0, "pay", {"a": 1, "b": 2})

    assert call_key(SESSION, 7, 0, "pay", {"b": 2, "a": 1}) == key


def test_other_calls_have_other_keys() -> None:
    """Another message, index, tool or input is another call."""
    keys = {
        call_key(SESSION, 7, 0, "pay", {"a": 1}),
        call_key(SESSION, 8, 0, "pay", {"a": 1}),
        call_key(SESSION, 7, 1, "pay", {"a": 1}),
        call_key(SESSION, 7, 0, "refund", {"a": 1}),
        call_key(SESSION, 7, 0, "pay", {"a": 2}),
    }

    assert len(keys) == 5
