"""`commit_change.lua` for the system user: it erases messages of a user in any chat."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import UserId
from chatserver.features.privacy.hot import contains_user_text
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as messages
from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts
from tests.integration.workers.change_support import Chat

SYSTEM = UserId("system")


@pytest.fixture
def chat(scripts: Scripts) -> Chat:
    return Chat(scripts)


def contains(chat: Chat, text: str) -> bool:
    """Return whether a text is in the log or in the overlay of a chat."""
    keys, redis = chat.scripts.keys, chat.scripts.redis
    content = repr(redis.xrange(keys.log(CHAT))) + repr(redis.hgetall(keys.over(CHAT)))
    return text in content


def test_erasure_of_an_edited_message_removes_all_its_texts(chat: Chat) -> None:
    """The texts of the message and all its edits are removed, although the author has left."""
    seq = chat.send(ALICE, "first secret")
    chat.commit_change(ALICE, "edit", seq, "second secret")
    chat.commit_change(ALICE, "edit", seq, "third secret")
    chat.scripts.redis.hdel(chat.scripts.keys.members(CHAT), ALICE)

    code, *_ = chat.commit_change(SYSTEM, "delete", seq, author=ALICE)

    assert code == 1
    assert not contains(chat, "secret")
    found = chat.get_overlay(seq)
    assert found is not None
    assert (found.deleted, found.sender, found.body) == (True, ALICE, "")


def test_erasure_of_an_expired_message_removes_its_text(chat: Chat) -> None:
    """Users cannot read or delete an expired message, but it is still in the log."""
    seq = chat.send(ALICE, "a secret", expires_at=1)

    refused, *_ = chat.commit_change(ALICE, "delete", seq)
    code, *_ = chat.commit_change(SYSTEM, "delete", seq, author=ALICE)

    assert (refused, code) == (9, 1)
    assert not contains(chat, "a secret")


def test_erasure_keeps_messages_of_other_users(chat: Chat) -> None:
    """The script compares the author of the message."""
    seq = chat.send(BOB, "of bob")

    code, *_ = chat.commit_change(SYSTEM, "delete", seq, author=ALICE)

    assert code == 8
    assert contains(chat, "of bob")


def test_delete_by_a_non_member_without_author_is_refused(chat: Chat) -> None:
    """The system user has no right except to erase."""
    seq = chat.send(ALICE)

    assert chat.commit_change(SYSTEM, "delete", seq) == [5]


def test_webhook_event_contains_text_of_its_sender_or_reporter_only() -> None:
    """A body that quotes a `sender` field does not count."""
    message = frames.Message(1, 1, "c", "m", ALICE, "r", "text", f'"sender":"{BOB}"')
    event = messages.encode(messages.build_event(message))
    report = messages.HookEvent("x", "report", 1, data={"reporter": ALICE, "reason": "why"})

    assert contains_user_text(event, ALICE)
    assert not contains_user_text(event, BOB)
    assert contains_user_text(messages.encode(report), ALICE)
