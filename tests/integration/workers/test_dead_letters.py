"""`chatserver dead-letters`: list and replay messages that could not be persisted."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec
import pytest

from chatserver.cli import dead_letters
from chatserver.container.storage import StorageContainer
from chatserver.errors import CorruptData
from chatserver.warm.messages.messages import PersistItem
from tests.integration.workers.persist.test_persist import swap
from tests.integration.workers.support import (
    Gateway,
    make_direct,
    persist,
)


async def test_dead_letters_are_listed_and_replayed(
    container: StorageContainer,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Replayed messages get their seq back. A message that is refused again stays listed."""
    team = await make_direct(container)
    await gateway.send(team, "before")
    await gateway.send(team, "refused one")
    await gateway.send(team, "refused two")
    await gateway.send(team, "always refused", tail=swap(b'"sender":"alice"', b'"sender":""'))
    put_batch = container.messages.put_batch

    async def refuse_marked(items: Sequence[PersistItem], timeout_s: float) -> None:
        if any("refused" in item.message.body for item in items):
            raise CorruptData("an earlier release could not")
        await put_batch(items, timeout_s)

    monkeypatch.setattr(container.messages, "put_batch", refuse_marked)
    await persist(container)
    last = (await container.messages.list_after(team.chat, 3, 1))[0]
    for seq, (kind, target, body) in enumerate((("edit", 2, "edited"), ("delete", 3, "")), 5):
        change = msgspec.structs.replace(
            last, seq=seq, ts=last.ts + seq, kind=kind, target=target, body=body, mid=f"m{seq}",
            sender="alice", deleted=False, rev=0,
        )  # fmt: skip
        await put_batch([PersistItem(change, None)], 20)
    settings = container.settings

    capsys.readouterr()
    await dead_letters._list(settings, 100)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[1:3] for line in lines[:2]] == [
        ["2", "an earlier release could not"],
        ["3", "an earlier release could not"],
    ]
    assert len(lines) == 3 and "refused one" in lines[0]
    assert await container.chat_log.get_stored(team.chat) == (4, {2, 3, 4})
    entry_id = lines[0].split("\t")[0]
    await dead_letters._replay(settings, {entry_id})
    with pytest.raises(click.ClickException, match="1 of 2 still cannot"):
        await dead_letters._replay(settings, None)
    with pytest.raises(click.ClickException, match="not found"):
        await dead_letters._replay(settings, {entry_id})

    found = await container.messages.list_after(team.chat, 0, 4)
    assert [(each.body, each.deleted) for each in found] == [
        ("before", False),
        ("edited", False),
        ("", True),
        ("", True),
    ]
    assert await container.hot.call("XLEN", container.hot.keys.dead(0)) == 1
    assert await container.chat_log.get_stored(team.chat) == (4, {4})
