"""Refused blocks; other moderation is tested on real servers."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.domain.write_restrictions import BLOCKS_MAX
from chatserver.errors import BadRequest, TooLarge
from chatserver.service.moderation.blocks_and_reports import BlocksAndReports

ALICE, BOB = UserId("alice"), UserId("bob")


class Rows:
    """A directory in which alice blocks `count` users."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.put: list[str] = []

    async def get_user(self, user: str) -> None:
        return None

    async def list_blocks(self, user: str, after: str | None, limit: int) -> list[int]:
        return [0] * min(self._count, limit)

    async def put_block(self, user: str, other: str, now: float) -> None:
        self.put.append(other)
        raise InterruptedError  # the rest of the block is not tested here


def moderation(rows: Rows) -> BlocksAndReports:
    fake: Any = rows
    unused: Any = None
    return BlocksAndReports(
        rows=fake,
        directory=fake,
        memberships=unused,
        hot_membership=unused,
        propagation=unused,
        blocks=unused,
        members=unused,
        inboxes=unused,
        devices=unused,
        publish_event=unused,
        clock=SystemClock(),
        follows=unused,
    )


async def test_block_above_the_limit_is_refused() -> None:
    """One user below the limit can still be blocked."""
    below, at = Rows(BLOCKS_MAX - 1), Rows(BLOCKS_MAX)

    with pytest.raises(InterruptedError):
        await moderation(below).block(ALICE, BOB)
    with pytest.raises(TooLarge):
        await moderation(at).block(ALICE, BOB)

    assert (below.put, at.put) == ([BOB], [])


async def test_block_of_oneself_is_refused() -> None:
    """A user cannot block themselves."""
    with pytest.raises(BadRequest):
        await moderation(Rows(0)).block(ALICE, ALICE)
