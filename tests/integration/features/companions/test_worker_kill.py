"""Assistant workers that are killed: each message still gets exactly one response."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    group_by_turn,
    joined_text,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import persister_of, running
from tests.support.servers.processes import eventually, eventually_equal


async def kill_worker_at(world: AssistantWorld, failpoint: str, worker: str = "assistant") -> None:
    """Run a worker process that kills itself at a failpoint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "worker", worker,
        env={**os.environ, **world.variables(CHAT_FAILPOINT=failpoint)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL
    await world.end_lease()


@pytest.mark.parametrize(
    ("failpoint", "turns"),
    [
        ("assistant.after_record:kill", 1),
        ("assistant.mid_answer:kill:3", 2),
        ("assistant.before_commit:kill", 2),
        ("assistant.after_commit:kill", 1),
    ],
)
async def test_assistant_killed_at_a_step_responds_once(
    redis_url: str, tables: Tables, failpoint: str, turns: int
) -> None:
    """Devices get the complete response, or an incomplete one and then a new one."""
    async with open_assistant_world(redis_url, tables.settings) as world:
        chat = await world.session("story:12")
        await world.send(chat, "go")
        await kill_worker_at(world, failpoint)
        async with world.running_worker("a2"), running(persister_of(world.container).run()):
            (answer,) = await world.wait_for_responses(chat, 1)
            await world.send(chat, "and on")
            answers = await world.wait_for_responses(chat, 2)
            await eventually(lambda: world.signals(chat)[-1].end)

    assert [one.reply_to for one in answers] == [1, 3]
    assert answer.body == "".join(f"word{n} " for n in range(1, 13))
    *before, last = [
        turn for turn in group_by_turn(world.signals(chat)).values() if turn[0].seq == 1
    ]
    assert len(before) + 1 == turns
    assert joined_text(last) == answer.body
    assert all(answer.body.startswith(joined_text(turn)) for turn in before)
    assert all(signal.end == "done" for signal in last[-1:] if turns == 2)


async def test_assistant_killed_after_stop_commits_the_text_so_far(
    redis_url: str, tables: Tables
) -> None:
    """Redis has the stop, so the next worker does not call the model again."""
    async with open_assistant_world(redis_url, tables.settings) as world:
        chat = await world.session("story:12")
        await world.send(chat, "go")
        await kill_worker_at(world, "assistant.mid_answer:kill:4")
        assert await world.deltas.stop(chat) == 1
        found = await world.deltas.find(chat)
        async with world.running_worker("a2"):
            (answer,) = await world.wait_for_responses(chat, 1)

    assert found is not None and found.text
    assert answer.body == found.text
    assert answer.ai is not None and answer.ai.end == "stopped"


@pytest.mark.parametrize(
    "failpoint", ["persist.before_checkpoint:kill", "persist.after_checkpoint:kill"]
)
async def test_assistant_responds_after_the_persist_worker_was_killed(
    redis_url: str, tables: Tables, failpoint: str
) -> None:
    """Entries are recorded before they are trimmed, and recorded entries get one response."""
    async with open_assistant_world(redis_url, tables.settings) as world:
        chat = await world.session("echo")
        await world.send(chat, "hello")
        await kill_worker_at(world, failpoint, "persist")
        await world.hot.call("HSET", world.hot.keys.lease(0, "persist"), "until_ms", 0)
        async with running(persister_of(world.container).run()):
            await eventually_equal(lambda: world.hot.call("XLEN", world.hot.keys.backlog(0)), 0)
            async with world.running_worker():
                answers = await world.wait_for_responses(chat, 1)

    assert [answer.reply_to for answer in answers] == [1]
    assert len(group_by_turn(world.signals(chat))) == 1
