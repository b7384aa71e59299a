"""Sending under random scripts of events: one outcome per message, in order."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.messages import CommitRefused, InboxCommit
from chatserver.errors import Unavailable
from tests.unit.service.builders import ALICE, BOB, CHAT, audience_of
from tests.unit.service.messaging.messaging_world import (
    Acked,
    World,
    positions_of,
    run_pending_tasks,
)

steps = st.lists(
    st.sampled_from(["send", "commit", "leave", "close", "load", "load fails", "fail"]),
    max_size=60,
)


class Scenario:
    """Runs the steps of a script that are possible.

    After the commit reports a closed chat, it reports the same for every waiting draft, as
    `GroupCommit.submit` promises.
    """

    def __init__(self) -> None:
        self.world = World(is_open=False)
        self._sent = 0
        self._is_closed = False

    async def run(self, script: list[str]) -> None:
        """Run the script, then complete all pending work."""
        for step in script:
            await self._run_step(step)
        while self.world.commits.queue or self.world.audiences.loading:
            await self._run_step("load")
            await self._run_step("commit")
        await self.world.messaging.drain()

    async def _run_step(self, step: str) -> None:
        if step == "send":
            self._sent += 1
            await self.world.send(f"r{self._sent}")
        elif step.startswith("load"):
            await self._load(is_successful=step == "load")
        elif self.world.commits.queue:
            await self._complete_next("close" if self._is_closed else step)

    async def _load(self, *, is_successful: bool) -> None:
        while self._is_closed and self.world.commits.queue:
            await self._complete_next("close")
        if CHAT in self.world.audiences.loading:
            self._is_closed = False
            audience = audience_of(ALICE, BOB)
            await self.world.audiences.loaded(
                audience if is_successful else Unavailable("warm tier")
            )

    async def _complete_next(self, step: str) -> None:
        commits = self.world.commits
        if step == "close":
            self._is_closed = True
            commits.close_chat()
        elif step == "leave":
            commits.leave_undelivered()
        elif step == "fail":
            draft, _ = commits.queue.popleft()
            commits.report(draft, CommitRefused(Unavailable("redis")))
        else:
            draft, audience, seq, ts = commits.pop_committed()
            positions = positions_of(audience, seq)
            users = audience.inline_users
            commits.report(draft, InboxCommit(seq, ts, audience.epoch, users, positions))
        await run_pending_tasks()


@given(steps)
def test_send_in_any_script_has_one_outcome_in_order(script: list[str]) -> None:
    """Every accepted message has one outcome, and committed ones keep the order of sending."""
    scenario = Scenario()

    asyncio.run(scenario.run(script))

    client = scenario.world.client
    refs = [each.ref for each in client.outcomes_received]
    assert sorted(refs) == sorted(f"r{n + 1}" for n in range(script.count("send")))
    committed = {
        each.seq: int(each.ref[1:]) for each in client.outcomes_received if isinstance(each, Acked)
    }
    in_order = [committed[seq] for seq in sorted(committed)]
    assert in_order == sorted(in_order)
