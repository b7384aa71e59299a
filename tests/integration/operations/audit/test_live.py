"""The audit during writes, for messages only in Redis, as a worker and as a command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client import REGISTRY

from chatserver.cli.main import cli
from chatserver.domain.ids import Seq, UserId
from chatserver.domain.messages import Audience
from chatserver.errors import ClientError, Unavailable
from chatserver.operations.audit.hot import AuditResults
from chatserver.operations.audit.worker import AuditWorker
from chatserver.protocol import codec
from tests.integration.features.attachments.support import cold_variables
from tests.integration.operations.audit.support import (
    NOW_TS,
    FaultInjector,
    audit_of,
    audited,
    summary,
)
from tests.integration.workers.archive.support import World
from tests.integration.workers.persist.test_message_changes import commit_change
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persist,
    persister_of,
    running,
    stored_of,
    variables_of,
)
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually, free_port
from workers.archive.worker import ArchiveWorker

pytest_plugins = ["tests.integration.workers.archive.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

SOAK_S = float(os.environ.get("AUDIT_SOAK_S", "2"))


@contextlib.asynccontextmanager
async def live_chat(archive_world: World) -> AsyncIterator[tuple[Audience, Gateway, UserId]]:
    """Make a direct chat with a gateway; yield its audience, the gateway and the sender."""
    mark = secrets.token_hex(4)
    ann, ben = UserId(f"ann-{mark}"), UserId(f"ben-{mark}")
    pair = await make_direct(archive_world.container, ann, ben)
    archive_world.chat = pair.chat
    gateway = Gateway(archive_world.container.hot)
    async with running(gateway.listen(), "gateway"):
        await gateway._gateway_stream.renew()
        yield pair, gateway, ann


async def test_audit_during_sends_edits_and_archiving_has_no_findings(archive_world: World) -> None:
    """Messages move through all tiers and change while they are audited."""
    container, rng, sent, ends = (
        archive_world.container,
        random.Random(5),
        0,
        time.monotonic() + SOAK_S,
    )
    seen = {"hot": 0, "warm": 0, "cold": 0}
    async with live_chat(archive_world) as (pair, gateway, ann):

        async def send() -> None:
            nonlocal sent
            while True:
                await gateway.send(pair, *(f"text {rng.random()}" for _ in range(5)), sender=ann)
                head = int(
                    await container.hot.call("HGET", container.hot.keys.chat(pair.chat), "seq")
                )
                for kind in ("edit", "reaction", "delete", "edit"):
                    target = rng.randint(1, head) if sent % 3 else rng.randint(1, 10)
                    with contextlib.suppress(ClientError):  # the target is an edit or is deleted
                        await commit_change(
                            container, pair.chat, ann, kind, target, rng.choice("xyz")
                        )
                sent = head
                await asyncio.sleep(0.02)

        async def archive() -> None:
            worker = ArchiveWorker(container, 0, "w1")  # as in the archive tests
            while True:
                with contextlib.suppress(Unavailable):
                    await worker.sweep()
                await asyncio.sleep(0.05)

        async with running(persister_of(container).run()), running(archive()), running(send()):
            rounds = 0
            while time.monotonic() < ends or rounds < 3 or not all(seen.values()):
                tally = await audited(archive_world, confirm_s=0.1)
                assert summary(tally) == []
                rounds += 1
                seen["hot"] += int(not await is_drained(container))
                seen["warm"] += len(await archive_world.warm_seqs())
                seen["cold"] += len(await archive_world.segments())
                assert time.monotonic() < ends + 120
    await persist(archive_world.container)
    assert summary(await audited(archive_world)) == []


async def test_messages_only_in_redis_are_audited_and_their_loss_is_found(
    archive_world: World,
) -> None:
    """Tested are an unpersisted message, an item lost later, and an item with another text."""
    container = archive_world.container
    async with live_chat(archive_world) as (pair, gateway, ann):
        await gateway.send(pair, *(f"text {n}" for n in range(1, 9)), sender=ann)
        await commit_change(container, pair.chat, ann, "edit", 2, "better")
        unstored = await audited(archive_world)
        await persist(archive_world.container)
        await gateway.send(pair, "nine", "ten", "eleven", sender=ann)
        complete = await audited(archive_world)
        stored = {each.seq: each for each in await stored_of(container, pair.chat)}
        await FaultInjector(archive_world).delete_items(stored[4])
        await container.hot.call("XDEL", container.hot.keys.log(pair.chat), "11-0")
        await container.hot.call(
            "XDEL", container.hot.keys.log(pair.chat), "6-0"
        )  # persisted, so it is not a loss
        changed = msgspec.structs.replace(stored[7], body="another")
        await archive_world.put(changed)

        faulty = await audited(archive_world)
        await persist(archive_world.container)

    assert (summary(unstored), unstored.entries) == ([], 9)
    assert (summary(complete), complete.entries) == ([], 12)
    assert sorted(summary(faulty)) == [
        ("item_only_in_log", 4, 4),
        ("log_missing", 11, 11),
        ("tiers_differ", 7, 7),
    ]


async def test_stored_messages_that_redis_does_not_record_as_stored_are_found(
    archive_world: World,
) -> None:
    """Entries that the backlog still has are no finding: a worker will record them."""
    container = archive_world.container
    hot = container.hot
    async with live_chat(archive_world) as (pair, gateway, ann):
        await gateway.send(pair, "one", "two", "three", sender=ann)
        await persist(archive_world.container)
        await gateway.send(pair, "four", "five", sender=ann)
        log = await container.chat_log.list_range(pair.chat, Seq(4), Seq(5))
        later = [codec.decode_message(codec.join_message(e.seq, e.ts, e.tail)) for e in log]
        await archive_world.put(*later)

        before_recorded = await audited(archive_world)
        await persist(archive_world.container)
        await hot.call("HSET", hot.keys.chat(pair.chat), "stored", 3)
        behind = await audited(archive_world)
        await gateway.send(pair, "six", sender=ann)
        await persist(archive_world.container)
        after_next = await audited(archive_world)

    assert summary(before_recorded) == []
    assert summary(behind) == [("stored_behind", 4, 5)]
    assert all(each.advice for each in behind.findings)
    assert summary(after_next) == []


async def test_worker_audits_all_chats_and_counts_its_findings(archive_world: World) -> None:
    """Findings are counted by kind. Objects of a chat without directory rows are audited too."""
    container = archive_world.container
    async with live_chat(archive_world) as (pair, gateway, ann):
        await gateway.send(pair, "one", "two", "three", sender=ann)
        await persist(archive_world.container)
    stored = await stored_of(container, pair.chat)
    await FaultInjector(archive_world).delete_items(stored[1])
    await FaultInjector(archive_world).set_attribute(stored[2], "body", {"S": "changed"})
    unknown = f"d-{secrets.token_hex(4)}"
    stray = await FaultInjector(archive_world).add_segment(
        [msgspec.structs.replace(archive_world.old(seq), chat=unknown) for seq in (1, 2)],
        with_row=False,
    )

    def counted() -> list[float]:
        names = ("missing", "duplicate", "mismatch", "orphan")
        return [REGISTRY.get_sample_value(f"chat_audit_{name}_total") or 0.0 for name in names]

    before = counted()
    worker = AuditWorker(
        container=container, audit=audit_of(archive_world), partition=0, owner="w1"
    )
    round_ = await worker.run_round()
    await worker._lease.release()
    increases = [after - base for after, base in zip(counted(), before, strict=True)]
    ended = REGISTRY.get_sample_value("chat_audit_round_time_seconds", {"partition": "0"})
    await archive_world.store.call("delete_object", Key=stray.key)
    results = AuditResults(container.hot)
    (recorded,), found = await results.list_rounds(), await results.list_findings(50)

    assert (recorded.chats, recorded.failed) == (round_.chats, 0)
    assert recorded.ended_ms >= recorded.began_ms
    assert {(pair.chat, "item_only_in_log"), (unknown, "orphan")} <= {
        (n.chat, n.kind) for n in found
    }
    assert recorded.findings >= 3
    assert round_.chats >= 1
    assert increases[0] >= 1 and increases[2] >= 1 and increases[3] >= 2
    assert ended is not None and time.time() - ended < 30


def environment_of(archive_world: World) -> dict[str, str]:
    """Return the environment of a command that uses the same servers."""
    container = archive_world.container
    return {
        **variables_of(container),
        **cold_variables(container.settings.cold),
        "CHAT_COLD_CALL_TIMEOUT_S": "30",
        "chatserver.operations.audit.worker.CONFIRM_S": "0",
        "chatserver.operations.audit.worker.ORPHAN_AGE_S": "0",
    }


async def command(archive_world: World, *arguments: str) -> tuple[int, str]:
    runner = CliRunner()
    result = await asyncio.to_thread(
        runner.invoke, cli, list(arguments), env=environment_of(archive_world)
    )
    return result.exit_code, result.stdout


@pytest.mark.timeout(300)
async def test_continuous_audit_runs_a_round_and_serves_metrics(archive_world: World) -> None:
    """`audit --continuous` exits with 0 after SIGTERM."""
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "audit", "--continuous",
        env=kept | environment_of(archive_world) | {"CHAT_TELEMETRY_METRICS_PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip

    async def has_finished_a_round() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient() as client:
                text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            return 'chat_audit_round_time_seconds{partition="0"}' in text
        return False

    try:
        await eventually(has_finished_a_round, 200)  # audits the chats of all tests of this run
        process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)
        # If it had to be killed, its lease would delay the next worker.
        await archive_world.container.hot.call(
            "DEL", archive_world.container.hot.keys.lease(0, "audit")
        )
    assert code == 0


async def test_audit_command_prints_findings_and_advice(archive_world: World) -> None:
    """The output is text or JSON; exit code 1 with findings, 2 without `--chat` or another mode."""
    sent = [archive_world.old(seq, ts=NOW_TS + seq) for seq in range(1, 5)]
    await archive_world.put(*sent)
    good = await command(archive_world, "audit", "--chat", archive_world.chat)
    await FaultInjector(archive_world).delete_items(sent[1])
    text = await command(
        archive_world, "audit", "--chat", archive_world.chat, "--max-read-units", "1000"
    )
    lines = await command(archive_world, "audit", "--chat", archive_world.chat, "--json")
    no_mode = await command(archive_world, "audit")

    assert good[0] == 0 and "nothing is wrong" in good[1]
    assert text[0] == 1
    assert (
        f"missing: item_missing: chat {archive_world.chat}, seq 2: no tier has these messages"
        in text[1]
    )
    assert "point-in-time recovery" in text[1] and ": 1 finding\n" in text[1]
    found = [json.loads(line) for line in lines[1].splitlines()]
    assert (found[0]["category"], found[0]["first"], found[0]["last"]) == ("missing", 2, 2)
    assert found[-1]["summary"]["findings"] == 1
    assert (lines[0], no_mode[0]) == (1, 2)
