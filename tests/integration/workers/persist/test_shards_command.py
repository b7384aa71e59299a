"""`chatserver shards set`: shards a chat before an event, for a given time."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from chatserver.cli.main import cli
from chatserver.container.storage import StorageContainer
from chatserver.warm.messages.sharded_chats import ShardedChats
from tests.integration.warm.messages.shard_support import raw_seqs, read_layout
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    open_container,
    persister_of,
    running,
    texts,
    variables_of,
)
from tests.support.servers.processes import eventually

US = 1_000_000


async def run_shards_set(container: StorageContainer, *arguments: str) -> tuple[int, str]:
    """Run the command in a thread; return its exit code and output."""
    run = CliRunner().invoke
    result = await asyncio.to_thread(
        run, cli, ["shards", "set", *arguments], env=variables_of(container)
    )
    return result.exit_code, result.output


@pytest.mark.constants({"workers.persist.shard_scaling.SHARD_CALM_S": 0.1})
async def test_chat_is_sharded_by_command_for_the_given_time(
    redis_url: str, tables: Tables
) -> None:
    """Later entries are on all shards, few messages do not reduce them, and reads find all."""
    async with open_container(redis_url, tables.settings) as container:
        team = await make_direct(container)
        gateway = Gateway(container.hot)
        async with running(persister_of(container).run(), "persist"):
            await gateway.send(team, *texts(5))
            await eventually(lambda: is_drained(container), 30)

            code, output = await run_shards_set(container, team.chat, "4", "--for", "2h")
            layout = await read_layout(tables.client, tables.settings, team.chat)
            now_ts = int(container.clock.time() * US)
            # until sharding starts, by the clock of Redis
            await asyncio.sleep(max(0, layout.from_ts - now_ts) / US)
            for _ in range(6):
                await gateway.send(team, *texts(5))
                await asyncio.sleep(0.2)  # few messages over several windows
            await eventually(lambda: is_drained(container), 30)

        after = await read_layout(tables.client, tables.settings, team.chat)
        raw = await raw_seqs(tables.client, tables.settings, team.chat)
        found = await container.messages.list_before(team.chat, None, 100)

    assert (code, output.startswith(f"{team.chat}: 4 shards, until ")) == (0, True), output
    assert layout.shards == 4 and layout.from_ts - now_ts < US
    assert after == layout, "the chat lost its shards before the time was over"
    assert raw[team.chat] == [1, 2, 3, 4, 5]
    assert {partition for partition in raw if "#" in partition} <= {
        f"{team.chat}#{n}" for n in range(4)
    }
    assert len(raw) > 2
    assert [each.seq for each in found] == list(range(1, 36))


async def test_repeated_command_extends_the_time_or_changes_the_number(
    redis_url: str, tables: Tables
) -> None:
    """A missing chat and invalid arguments are refused."""
    async with open_container(redis_url, tables.settings) as container:
        team = await make_direct(container)

        codes = [
            (await run_shards_set(container, team.chat, *arguments))[0]
            for arguments in (["2"], ["2", "--for", "3d"], ["8"], ["3"], ["2", "--for", "soon"])
        ]
        missing = await run_shards_set(container, "nothing", "2")
        layouts = await ShardedChats(tables.client).get_for_keys(2**53)

    assert codes == [0, 0, 0, 2, 2]
    assert missing[0] == 1
    assert [shards for _, shards in layouts.of(team.chat).periods] == [2, 8]
    assert layouts.floors[team.chat].shards == 8
