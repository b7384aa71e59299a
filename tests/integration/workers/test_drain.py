"""Stopped workers: each finishes its step and releases its leases."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from chatserver.dev.servers import Server
from tests.integration.features.privacy.support import Vault, open_vault
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, redis_client

# The timeout includes the start of a whole stack.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

# The kinds of work that always hold a lease.
ALWAYS_LEASED = {"persist", "repair", "archive", "sweep", "holds", "bodies", "audit"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def vault(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vault]:
    """A stack with a bucket and without workers, which the tests start."""
    async with open_vault(tmp_path_factory.mktemp("drain")) as made:
        for worker in made.stack.workers.values():
            worker.kill()
        # Otherwise the leases of killed workers would have to expire first.
        with redis_client(made.stack.redis_url) as client:
            for key in client.scan_iter("*:lease:*"):
                client.delete(key)
        yield made


def holders(vault: Vault) -> dict[str, str]:
    """Return the lease holder of each kind of work of partition 0, or ``""``."""
    with redis_client(vault.stack.redis_url, decode_responses=True) as client:
        return {
            key.split(":lease:")[1]: str(client.hget(key, "owner"))
            for key in client.scan_iter("*:lease:*")
        }


async def end(worker: Server) -> int:
    """Stop a worker with SIGTERM; return its exit code."""
    assert worker.process is not None
    worker.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(worker.process.wait, 60)


async def send_until_cancelled(sender: RawChat, chat: str, acked: list[int]) -> None:
    """Send messages one at a time and record the acked seqs, until canceled."""
    for number in itertools.count():
        acked.append((await sender.send_unrecorded(chat, f"d{number}", "x"))["seq"])


async def test_stopped_workers_exit_gracefully_and_release_every_lease(vault: Vault) -> None:
    """All workers are stopped under load. Clients can still send, and no message is lost."""
    stack = vault.stack
    await stack.add_users(("ann", "ben"))
    # This one is first, because a gateway waits for its responses.
    first = await stack.start_worker_async("all", "audit")
    async with stack.chat_of("ann") as ann, stack.chat_of("ben") as ben:
        chat = await ann.open_direct("ben")
        acked: list[int] = []
        sending = asyncio.create_task(send_until_cancelled(ann, chat, acked))
        await eventually(
            lambda: {work for work, owner in holders(vault).items() if owner} >= ALWAYS_LEASED, 60
        )
        await eventually(lambda: len(acked) > 50, 60)

        code = await end(first)
        held = {work: owner for work, owner in holders(vault).items() if owner}
        before = len(acked)
        await eventually(lambda: len(acked) > before + 20, 60, "messages are acked without workers")
        second = await stack.start_worker_async("all")
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending

        await eventually(lambda: len(ben.messages(chat)) >= len(acked), 60)

        async def is_stored() -> bool:
            return len(await stack.read_warm(chat)) >= len(acked)

        await eventually(is_stored, 60, "all messages are stored by the next worker")

    assert code == 0
    assert held == {}
    assert acked == list(range(1, len(acked) + 1))
    assert await end(second) == 0
    log = first.log_path.read_text()
    assert "workers.stopped" in log
    assert "worker.crashed" not in log
