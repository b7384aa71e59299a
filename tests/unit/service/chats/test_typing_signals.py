"""Typing signals to the other members of a chat."""

from __future__ import annotations

import pytest

from chatserver.errors import NotFound
from chatserver.protocol import codec, frames
from chatserver.service.chats.typing_signals import TypingSignals
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of
from tests.unit.service.chats.fakes import Hot


def make_typing(hot: Hot, *known: KnownAudiences) -> TypingSignals:
    """Return a `TypingSignals`; by default CHAT is a group of alice and bob."""
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB))
    return TypingSignals(inboxes=hot, audiences=audiences, devices=hot, large_chats=hot, blocks=hot)


async def test_typing_is_sent_to_the_other_members() -> None:
    """The user who types gets no signal."""
    hot = Hot()
    known = KnownAudiences(audience_of(ALICE, BOB, CAROL))

    await make_typing(hot, known).send(ALICE, frames.Typing(CHAT, on=True))

    signal = codec.encode(frames.Signal("typing", CHAT, ALICE, True))
    assert hot.signals == [(BOB, signal), (CAROL, signal)]


async def test_typing_by_a_non_member_is_refused() -> None:
    """A non-member cannot send a signal (guarantee P7)."""
    hot = Hot()

    with pytest.raises(NotFound):
        await make_typing(hot).send(CAROL, frames.Typing(CHAT, on=True))
    assert hot.signals == []
