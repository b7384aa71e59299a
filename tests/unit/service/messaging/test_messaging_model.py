"""Sending as a whole: any script of events, and each message has one outcome, in order."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import Unavailable
from tests.unit.service.builders import ALICE, BOB, CHAT, audience_of
from tests.unit.service.messaging.messaging_world import Acked, World, places_of, settle_down

steps = st.lists(
    st.sampled_from(["send", "commit", "leave", "close", "load", "load fails", "fail"]),
    max_size=60,
)


class Story:
    """Lets happen what a script says, as far as it can happen.

    Once the commit has said that the chat is closed it says so of every draft that waits, as
    `GroupCommit.submit` promises.
    """

    def __init__(self) -> None:
        self.world = World(is_open=False)
        self._sent = 0
        self._is_closed = False

    async def play(self, script: list[str]) -> None:
        """Go through the script, and then let all of it end well."""
        for step in script:
            await self._do(step)
        while self.world.commits.queue or self.world.audiences.loading:
            await self._do("load")
            await self._do("commit")
        await self.world.messaging.drain()

    async def _do(self, step: str) -> None:
        if step == "send":
            self._sent += 1
            await self.world.send(f"r{self._sent}")
        elif step.startswith("load"):
            await self._load(is_well=step == "load")
        elif self.world.commits.queue:
            await self._answer("close" if self._is_closed else step)

    async def _load(self, *, is_well: bool) -> None:
        while self._is_closed and self.world.commits.queue:
            await self._answer("close")
        if CHAT in self.world.audiences.loading:
            self._is_closed = False
            audience = audience_of(ALICE, BOB)
            await self.world.audiences.loaded(audience if is_well else Unavailable("warm tier"))

    async def _answer(self, step: str) -> None:
        commits = self.world.commits
        if step == "close":
            self._is_closed = True
            commits.close_chat()
        elif step == "leave":
            commits.leave_undelivered()
        elif step == "fail":
            draft, _ = commits.queue.popleft()
            draft.owner.failed(draft, Unavailable("redis"))
        else:
            draft, audience, seq, ts = commits.take()
            places = places_of(audience, seq)
            draft.owner.committed(draft, seq, ts, audience.epoch, audience, places)
        await settle_down()


@given(steps)
def test_send_whatever_happens_is_answered_once_and_keeps_its_order(script: list[str]) -> None:
    """Every message taken has one outcome, and those that stand rise in the order of sending."""
    story = Story()

    asyncio.run(story.play(script))

    client = story.world.client
    heard = [each.ref for each in client.heard]
    assert sorted(heard) == sorted(f"r{n + 1}" for n in range(script.count("send")))
    stands = {each.seq: int(each.ref[1:]) for each in client.heard if isinstance(each, Acked)}
    in_order = [stands[seq] for seq in sorted(stands)]
    assert in_order == sorted(in_order)
