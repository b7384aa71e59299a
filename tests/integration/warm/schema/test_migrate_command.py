"""`chatserver migrate` with kills, an old and a new worker, and load.

The old worker has the current release, the new one a release with the example migrations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from chatserver.cli.main import cli
from chatserver.container.storage import StorageContainer
from chatserver.dev.servers import SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import Mid, Ref, Seq
from chatserver.domain.message_change_types import MessageChange
from chatserver.domain.messages import Audience
from chatserver.hot.chats.message_changes import MessageChangeCommitter
from chatserver.hot.worker_leases import Lease
from chatserver.protocol import codec, frames
from chatserver.requests.registry import make_call
from chatserver.warm.schema import migrations
from tests.integration.warm.schema.examples.migrations import EXAMPLES
from tests.integration.warm.schema.examples.thread_index import add_thread
from tests.integration.warm.schema.migration_support import Writer, scan_all
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    GATEWAY,
    Gateway,
    make_group,
    make_users,
    open_container,
    stored_of,
    variables_of,
)
from tests.support.constants import constants
from tests.support.deadlines import EXIT_S, wait_for_exit
from tests.support.servers.processes import eventually

Process = asyncio.subprocess.Process
Start = Callable[..., Any]
CURRENT = "tests.support.cli"
NEXT = "tests.integration.warm.schema.next_release"


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The components of a process of the current release; Redis has two partitions."""
    newest = {"chatserver.warm.schema.active_version.NEWEST": EXAMPLES[-1].number}
    with constants(newest):  # migrations do not wait for the process of the test
        async with open_container(redis_url, tables.settings, redis={"partitions": 2}) as made:
            yield made


@pytest.fixture
async def start(container: StorageContainer) -> AsyncIterator[Start]:
    """A function that starts commands on the same servers; they are killed at the end."""
    started: list[Process] = []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}

    async def start_one(*arguments: str, release: str = NEXT, **env: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            release,
            *arguments,
            env=kept
            | variables_of(container)
            | {
                "CHAT_REDIS_PARTITIONS": "2",
                "chatserver.warm.schema.migrations.progress_and_lock.MIGRATE_LEASE_S": "1",
            }
            | env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(process.communicate(), EXIT_S)


async def run(start: Start, *arguments: str, release: str = NEXT, **env: str) -> tuple[int, str]:
    """Run a command to its end; return the exit code and the output."""
    process: Process = await start(*arguments, release=release, **env)
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def find_lease_holder(
    container: StorageContainer, partition: int, excluded: bytes = b""
) -> bytes | None:
    """Return the holder of a partition's lease unless it is `excluded`."""
    key = container.hot.keys.lease(partition, "persist")
    owner: bytes | None = await container.hot.call("HGET", key, "owner")
    return owner if owner != excluded else None


async def create_group_in(container: StorageContainer, partition: int) -> Audience:
    """Create a group whose chat is in a partition."""
    for number in range(1000):
        group = await make_group(container, ALICE, BOB, ref=f"g{partition}-{number}")
        if container.hot.keys.get_partition(group.chat) == partition:
            return group
    raise AssertionError


def as_reply(tail: bytes) -> bytes:
    """Make a message a reply."""
    return tail[:-1] + b',"reply_to":1}'


class Clients:
    """Clients that chat in some groups with replies, edits and deletions."""

    def __init__(
        self, container: StorageContainer, gateway: Gateway, groups: list[Audience]
    ) -> None:
        self._container = container
        self._gateway = gateway
        self._dice = random.Random(5)
        self._message_changes = MessageChangeCommitter(container.hot, GATEWAY)
        self.groups = groups
        self.sent = dict.fromkeys((group.chat for group in groups), 0)

    async def chat(self, stop: asyncio.Event) -> None:
        """Chat until stopped."""
        while not stop.is_set():
            for group in self.groups:
                await self._gateway.send(group, f"text {self.sent[group.chat]}", tail=as_reply)
                self.sent[group.chat] += 1
                if self._dice.random() < 0.5:
                    await self._commit_change(group)
            await asyncio.sleep(0.01)

    async def _commit_change(self, group: Audience) -> None:
        kind = self._dice.choice(("edit", "delete", "edit"))
        body = "" if kind == "delete" else "edited"
        ref, mid = Ref(f"c{self._dice.getrandbits(40):x}"), Mid("M")
        target = self._dice.randint(1, self.sent[group.chat])
        tail = codec.encode_entry_tail(group.chat, mid, ALICE, ref, kind, body, target)
        made = MessageChange(group.chat, ALICE, ref, mid, "dd", kind, Seq(target), body, tail)
        changed = await self._message_changes.commit_change(made)
        self.sent[group.chat] = max(self.sent[group.chat], changed.seq)


@pytest.mark.timeout(600)
async def test_migrations_under_load_with_kills_and_two_releases_lose_nothing(
    container: StorageContainer, tables: Tables, start: Start
) -> None:
    """The procedure of docs/evolution.md, with a kill at each step of `migrate up`."""
    await Writer(tables, "before", random.Random(6)).put(150)
    gateway = Gateway(container.hot)
    groups = [await create_group_in(container, partition) for partition in (0, 1)]
    await make_users(container, CAROL)
    clients, stop = Clients(container, gateway, groups), asyncio.Event()
    # The old worker persists partition 0 and the new one partition 1, because the other lease is
    # held.
    held = Lease(
        hot=container.hot,
        partition=1,
        work="persist",
        owner="test",
        ttl_s=120.0,
        clock=SystemClock(),
    )
    assert await held.claim()
    old: Process = await start(
        "worker", "persist", "rpc", release=CURRENT, CHAT_PERSIST_LEASE_S="60"
    )
    await eventually(lambda: find_lease_holder(container, 0), 120)
    new: Process = await start("worker", "persist")
    await eventually(lambda: _are_known(tables, 2), 120)
    old.send_signal(signal.SIGSTOP)
    await held.release()
    await eventually(lambda: find_lease_holder(container, 1, b"test"), 120)
    old.send_signal(signal.SIGCONT)

    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(gateway.listen())
        chatting = tasks.create_task(clients.chat(stop))
        rng = random.Random(8)
        up = ("migrate", "up", "--segments", "3", "--page-items", "10", "--max-write-units", "2000")
        for failpoint in (
            "after_index_begun:kill",
            f"after_write:kill:{rng.randint(2, 30)}",
            f"before_checkpoint:kill:{rng.randint(2, 5)}",
            "after_version:kill",
        ):
            code, output = await run(start, *up, CHAT_FAILPOINT=f"migrate.{failpoint}")
            assert code == -signal.SIGKILL, output
        code, output = await run(start, *up)
        assert code == 0, output
        assert "4 thread-only: not done. It is a contract" in output
        assert output.endswith("schema 3\n")

        code, output = await run(start, "migrate", "status")
        assert code == 0
        assert "schema 3 of 6; processes need schema 1 or newer" in output
        assert output.count(": schema 1, seen ") == 1
        assert output.count(": schema 6, seen ") == 2  # one worker and this test
        await _change_members(container, gateway, groups[0])

        code, output = await run(start, *up, "--contract", "4")
        assert code == 1
        assert "processes of older releases are running; replace them first: worker-" in output
        old.send_signal(signal.SIGTERM)
        assert await wait_for_exit(old) == 0
        await eventually(lambda: find_lease_holder(container, 0), 120)
        code, output = await run(start, *up, "--contract", "4")
        assert code == 0, output
        assert output.endswith("schema 4\n")
        stop.set()
        await chatting
        await eventually(lambda: _are_drained(container), 60)
        listening.cancel()

    code, output = await run(start, "worker", "persist", CHAT_WARM_SCHEMA_VERSION="1")
    assert code == 2
    assert "have schema 4, which requires processes of schema 2 or newer; this one has 1" in output
    assert "unset CHAT_WARM_SCHEMA_VERSION" in output

    assert all(add_thread(row) is None for row in await scan_all(tables))
    for group in groups:
        seqs = [entry.seq for entry in await stored_of(container, group.chat)]
        assert seqs == list(range(1, clients.sent[group.chat] + 1))
        assert len(seqs) > 20
    new.send_signal(signal.SIGTERM)
    assert await wait_for_exit(new) == 0


async def _are_known(tables: Tables, count: int) -> bool:
    """Return whether `count` other worker processes are registered."""
    rows = await tables.scan("directory")
    return sum(row["SK"]["S"].startswith("process#") for row in rows) > count


async def _are_drained(container: StorageContainer) -> bool:
    """Return whether all partitions are persisted."""
    return not any(
        [await container.hot.call("XLEN", container.hot.keys.backlog(n)) for n in (0, 1)]
    )


async def _change_members(container: StorageContainer, gateway: Gateway, group: Audience) -> None:
    """Change the members of a chat; the old worker handles the request."""
    invite = frames.Invite(1, group.chat, "i1", [CAROL])
    await gateway.calls.forward_frame(make_call(ALICE, invite), is_needed=False)
    await gateway.calls.forward_frame(
        make_call(CAROL, frames.Leave(2, group.chat, "l1")), is_needed=False
    )

    members = await container.directory.list_members(group.chat)
    assert [member.user for member in members] == [ALICE, BOB]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore the logging setup of the process after a command has changed it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def test_plan_status_and_up_print_pending_migrations_cost_and_progress(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    """Without a terminal, each progress report is a line."""
    settings = tables.settings
    for name in ("endpoint", "table_prefix", "access_key"):
        monkeypatch.setenv(f"CHAT_WARM_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.setenv("CHAT_WARM_SECRET_KEY", SECRET_KEY)
    await Writer(tables, "before", random.Random(6)).put(50)

    monkeypatch.setattr(migrations, "MIGRATIONS", EXAMPLES)

    async def run_migrate(*arguments: str) -> list[str]:
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["migrate", *arguments])
        assert result.exit_code == 0, result.output
        return [line.strip() for line in result.output.splitlines()]

    plan = await run_migrate("plan", "--max-write-units", "10")
    assert plan[0] == "2 thread-index (expand): index `thread`: replies to a message"
    assert plan[3].startswith("50 items, ")
    assert plan[3].endswith("to write (from a sample of 32)")
    assert re.fullmatch(r"about \d+ read units, \d+ write units, \d+ s at 10 a second", plan[4])
    assert "no units: existing items do not change" in plan
    assert (await run_migrate("status"))[:2] == [
        "schema 1 of 6; processes need schema 1 or newer",
        "2  thread-index     expand    to do  index `thread`: replies to a message",
    ]
    done = await run_migrate("up")
    assert done[:2] == [
        f"2 thread-index: index thread of {settings.table_prefix}messages: started",
        f"2 thread-index: index thread of {settings.table_prefix}messages: active",
    ]
    assert done[-1] == "schema 3"
    assert (await run_migrate("up", "--contract", "4"))[-1] == "schema 4"
    assert (await run_migrate("up", "--contract", "5"))[-1] == "schema 5"
    assert (await run_migrate("up"))[-1] == "schema 6"
    assert await run_migrate("plan") == ["nothing to do"]
    assert await run_migrate("up") == ["nothing to do: schema 6", "schema 6"]
    (last,) = [line for line in await run_migrate("status") if line.startswith("4 ")]
    assert re.match(r"4  thread-only +contract +done +.* \(\d{4}-.* UTC\)$", last)
