"""Self-test of the checker: a fault injected into a healthy stack fails the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.world import World
from tests.support.stack import Stack
from tests.support.stored_items import dynamodb_client


def lose(client: Any, items: list[dict[str, Any]]) -> None:
    """Delete a message from DynamoDB."""
    client.delete_item(TableName="chat_messages", Key=key_of(items[len(items) // 2]))


def duplicate(client: Any, items: list[dict[str, Any]]) -> None:
    """Insert a message into DynamoDB a second time, at another seq."""
    last = items[-1]
    twin = last | {"ts": {"N": str(int(last["ts"]["N"]) + 1)}}
    twin["seq"] = {"N": str(int(last["seq"]["N"]) + 1)}
    client.put_item(TableName="chat_messages", Item=twin)


def swap(client: Any, items: list[dict[str, Any]]) -> None:
    """Swap two messages in DynamoDB."""
    a, b = items[1:3]
    for place, message in ((a, b), (b, a)):
        swapped = message | {"ts": place["ts"], "seq": place["seq"]}
        client.put_item(TableName="chat_messages", Item=swapped)


def key_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return the key of an item."""
    return {"chatid": item["chatid"], "ts": item["ts"]}


@pytest.mark.parametrize(
    ("inject", "rule"),
    [(lose, "P1"), (duplicate, "P2"), (swap, "P3")],
    ids=["loss", "duplicate", "swap"],
)
async def test_fault_injected_into_the_warm_tier_fails_the_run(
    world: World, stack: Stack, inject: Callable[[Any, list[dict[str, Any]]], None], rule: str
) -> None:
    """A lost, a duplicate and two swapped messages are each reported under their rule."""
    async with world:
        await world.wait_for_acks(60)
        await world.quiesce()
        await world.wait_until_stored()
        acks = [ack.chat for ack in world.history.acks()]
        chat = max(set(acks), key=acks.count)
        inject(dynamodb_client(stack.dynamodb.endpoint), await stack.read_items(chat))

        with pytest.raises(AssertionError) as caught:
            await world.finish_and_check()

    assert f"\n{rule}: " in str(caught.value)
    assert f"seed {world.seed}" in str(caught.value)
