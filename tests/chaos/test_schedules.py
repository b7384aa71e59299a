"""A few fixed fault schedules; `python -m tests.chaos.schedules` runs any number of them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.full_simulation import FIRST_ABSENT_CHAT, FullSimulation
from tests.chaos.full_stack import FullStack, open_full_stack
from tests.chaos.nemesis import FAULTS, Nemesis
from tests.chaos.schedules import run_seed
from tests.chaos.simulation import Action
from tests.support.stored_items import dynamodb_client

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # a schedule takes half a minute on an otherwise idle machine
]

SEEDS = (19, 37)  # chosen because they have many kinds of faults: together 17 of 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FullStack]:
    """One stack for all schedules."""
    async with open_full_stack(tmp_path_factory.mktemp("schedules")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
async def test_fault_schedule_keeps_all_guarantees(full: FullStack, seed: int) -> None:
    """Kills, data loss, slow links, pauses and skewed clocks in all tiers violate no guarantee."""
    result = await run_seed(full, seed, set(FAULTS))

    assert not result.problem, result.problem
    assert result.acks > 100, "too few operations succeeded"


async def test_fault_injected_into_a_full_stack_is_reported(
    full: FullStack, tmp_path: Path
) -> None:
    """A read mark beyond the chat and a duplicate push are each reported."""
    async with FullSimulation(full, tmp_path, 0) as simulation:
        nemesis = Nemesis(simulation)
        await simulation.begin()
        await nemesis.perform(Action("send", (0, 0, FIRST_ABSENT_CHAT, 1)))
        await nemesis.perform(Action("quiesce"))
        set_mark_beyond_head(full, simulation.chats[FIRST_ABSENT_CHAT], simulation.users[0])
        await repeat_push(simulation)

        with pytest.raises(AssertionError) as caught:
            await simulation.finish_and_check()

    assert f"\nI14: read mark of {simulation.users[0]}" in str(caught.value)
    assert f"\nI13: {simulation.absent[0].user} was pushed" in str(caught.value)


def set_mark_beyond_head(full: FullStack, chat: str, user: str) -> None:
    """Set a read mark in DynamoDB above the chat's newest entry."""
    dynamodb_client(full.stack.dynamodb.endpoint).update_item(
        TableName="chat_directory",
        Key={"PK": {"S": f"c#{chat}"}, "SK": {"S": f"m#{user}"}},
        UpdateExpression="SET #read = :read",
        ExpressionAttributeNames={"#read": "read"},
        ExpressionAttributeValues={":read": {"N": "10000"}},
    )


async def repeat_push(simulation: FullSimulation) -> None:
    """Deliver a push to the push service a second time."""
    browser = simulation.absent[0].browser
    await browser.wait_for(1)
    first = browser.taken[0]
    simulation.full.pushes.taken.append(dataclasses.replace(first, t=first.t + 0.01))
