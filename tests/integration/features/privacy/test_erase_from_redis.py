"""`amend.lua` for the system user: erases a user's message, whoever is a member."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import UserId
from chatserver.features.privacy.hot import contains_user_text
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as messages
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts
from tests.integration.workers.amend_support import Chat

pytest_plugins = ["tests.integration.hot.fixtures"]

SYSTEM = UserId("system")


@pytest.fixture
def chat(scripts: Scripts) -> Chat:
    """A group of alice, bob and carol."""
    return Chat(scripts)


def is_anywhere(chat: Chat, text: str) -> bool:
    """Whether a text is in the log, or in the overlay."""
    keys, redis = chat.scripts.keys, chat.scripts.redis
    claimed = repr(redis.xrange(keys.log(CHAT))) + repr(redis.hgetall(keys.over(CHAT)))
    return text in claimed


def test_erasure_of_an_edited_message_takes_every_text_of_it(chat: Chat) -> None:
    """The message and all its edits lose their texts; neither side is a member."""
    seq = chat.say(ALICE, "first secret")
    chat.amend(ALICE, "edit", seq, "second secret")
    chat.amend(ALICE, "edit", seq, "third secret")
    chat.scripts.redis.hdel(chat.scripts.keys.members(CHAT), ALICE)

    code, *_ = chat.amend(SYSTEM, "delete", seq, author=ALICE)

    assert code == 1
    assert not is_anywhere(chat, "secret")
    found = chat.over(seq)
    assert found is not None
    assert (found.deleted, found.sender, found.body) == (True, ALICE, "")


def test_erasure_of_a_message_whose_time_is_over_takes_its_text(chat: Chat) -> None:
    """An expired message is unreadable but still in the log, until it is erased."""
    seq = chat.say(ALICE, "a secret", expires_at=1)

    refused, *_ = chat.amend(ALICE, "delete", seq)
    code, *_ = chat.amend(SYSTEM, "delete", seq, author=ALICE)

    assert (refused, code) == (9, 1)
    assert not is_anywhere(chat, "a secret")


def test_erasure_leaves_what_is_of_somebody_else(chat: Chat) -> None:
    """The name of the author is compared where the text is taken."""
    seq = chat.say(BOB, "of bob")

    code, *_ = chat.amend(SYSTEM, "delete", seq, author=ALICE)

    assert code == 8
    assert is_anywhere(chat, "of bob")


def test_no_member_erases_without_an_author(chat: Chat) -> None:
    """A non-member changes nothing, as before."""
    seq = chat.say(ALICE)

    assert chat.amend(SYSTEM, "delete", seq) == [5]


def test_holds_words_tells_whose_words_an_event_of_a_webhook_holds() -> None:
    """Messages and reports of the user; a deletion has no words, a quotation is no sender."""
    message = frames.Message(1, 1, "c", "m", ALICE, "r", "text", f'"sender":"{BOB}"')
    said = messages.encode(messages.event_of(message))
    report = messages.HookEvent("x", "report", 1, data={"reporter": ALICE, "reason": "why"})

    assert contains_user_text(said, ALICE)
    assert not contains_user_text(said, BOB)
    assert contains_user_text(messages.encode(report), ALICE)
