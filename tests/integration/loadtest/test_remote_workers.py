"""Load test processes that join a coordinator over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from chatserver.loadtest import remote_workers
from chatserver.loadtest.coordinator import Coordinator, LoadFailed
from chatserver.loadtest.plan import SCENARIOS, Scenario, ScriptFile
from chatserver.loadtest.remote_workers import JoiningProcess, accept_workers, parse_host_port
from chatserver.loadtest.script_loader import load_script
from chatserver.loadtest.stub_server import StubState, open_stub
from tests.support.load_runs import plan_of
from tests.support.servers.processes import free_port

SECRET = "x" * 32
DIRECT = SCENARIOS["direct"]


@pytest.fixture
async def stub_port() -> AsyncIterator[int]:
    server, port = await open_stub(StubState())
    yield port
    server.close()


def join(port: int, scenario: Scenario = DIRECT, secret: str = SECRET) -> asyncio.Task[None]:
    """Start a process that joins."""
    process = JoiningProcess(("127.0.0.1", port), secret, scenario)
    return asyncio.create_task(process.run(lambda: None), name="join")


async def test_joined_process_runs_its_part_of_the_load(stub_port: int, tmp_path: Path) -> None:
    """The users of both processes are counted; the joined one reads its own copy of the script."""
    scenarios = []
    for name in ("a.py", "b.py"):
        path = tmp_path / name
        path.write_text("async def user(user):\n    user.send('direct')\n")
        file = load_script(path).file
        scenarios.append(msgspec.structs.replace(DIRECT, script=file))
    port = free_port()
    joining = join(port, scenarios[1])

    async with accept_workers(("127.0.0.1", port), SECRET, scenarios[0], 1) as remotes:
        plans = [
            plan_of(stub_port, first_user=first, duration_s=30, script=scenarios[0].script)
            for first in (1, 3)
        ]
        run = Coordinator(plans, remotes=remotes)
        await asyncio.wait_for(run.run(), 90)
    await asyncio.wait_for(joining, 30)

    assert run.ended == "done" and len(run.totals.results) == 2
    assert run.totals.counts["acked"] == 4 and run.totals.expected == 8
    assert run.chats == {"direct": 2}


async def test_plan_for_another_machine_has_neither_secret_nor_path(tmp_path: Path) -> None:
    """An attacker who reads the connection cannot create tokens."""
    port = free_port()
    seen: list[bytes] = []

    async def record() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        hello = json.loads(await reader.readline())
        proofs = remote_workers._Proofs(SECRET, hello["nonce"], "n")
        own = {"nonce": "n", "scenario": "direct", "proof": proofs.make("join", "direct")}
        writer.write(json.dumps(own).encode() + b"\n")
        seen.append(await reader.readline())
        writer.close()

    async def join_when_open() -> None:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return await record()
            await asyncio.sleep(0.01)

    joining = asyncio.create_task(join_when_open(), name="join")
    async with accept_workers(("127.0.0.1", port), SECRET, DIRECT, 1) as remotes:
        script = ScriptFile(str(tmp_path / "mine.py"), "digest", {"direct": 2})
        remotes[0].send_plan(plan_of(1, secret=SECRET, script=script))
        await asyncio.wait_for(joining, 30)

    assert b"digest" in seen[0]
    assert SECRET.encode() not in seen[0] and str(tmp_path).encode() not in seen[0]


@pytest.mark.parametrize(
    ("scenario", "secret", "reason"),
    [
        (DIRECT, "y" * 32, "the secrets differ"),
        (SCENARIOS["mixed"], SECRET, "the scenarios or the contents of the scripts differ"),
    ],
)
async def test_process_with_another_secret_or_scenario_is_refused(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, secret: str, reason: str
) -> None:
    """Both sides report why."""
    monkeypatch.setattr(remote_workers, "JOIN_S", 3.0)
    port = free_port()
    joining = join(port, scenario, secret)

    with pytest.raises(LoadFailed, match="0 of 1 processes of other machines") as too_few:
        async with accept_workers(("127.0.0.1", port), SECRET, DIRECT, 1):
            pass

    assert reason in str(too_few.value)
    with pytest.raises(LoadFailed, match=reason):
        await asyncio.wait_for(joining, 30)


async def test_coordinator_without_the_secret_gets_no_worker() -> None:
    """A process runs a plan only if the coordinator has proved that it knows the secret."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"nonce":"n"}\n')
        await reader.readline()
        plan = msgspec.json.encode(plan_of(1)).decode()
        writer.write(json.dumps({"plan": plan, "proof": "0" * 64}).encode() + b"\n")

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    try:
        with pytest.raises(LoadFailed, match="the coordinator does not know the secret"):
            await asyncio.wait_for(join(server.sockets[0].getsockname()[1]), 30)
    finally:
        server.close()


async def test_malformed_connection_does_not_disturb_the_others(stub_port: int) -> None:
    """A port scanner sends what it likes."""
    port = free_port()

    async def scan() -> None:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000 + b"\n", b""):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.close()

    async def scan_and_join() -> None:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                await scan()
                break
            await asyncio.sleep(0.01)
        await join(port)

    joining = asyncio.create_task(scan_and_join(), name="scan")
    async with accept_workers(("127.0.0.1", port), SECRET, DIRECT, 1) as remotes:
        run = Coordinator(
            [plan_of(stub_port, first_user=first) for first in (1, 3)], remotes=remotes
        )
        await asyncio.wait_for(run.run(), 90)
    await asyncio.wait_for(joining, 30)

    assert len(run.totals.results) == 2


async def test_lost_machine_breaks_the_run(stub_port: int) -> None:
    """The figures of a run without one of its machines would be wrong."""
    port = free_port()
    joining = join(port)

    async with accept_workers(("127.0.0.1", port), SECRET, DIRECT, 1) as remotes:
        plans = [plan_of(stub_port, first_user=first, duration_s=60) for first in (1, 3)]
        run = Coordinator(plans, remotes=remotes)
        await asyncio.wait_for(run.run(lambda number: joining.cancel() and None), 90)
    await asyncio.gather(joining, return_exceptions=True)

    assert run.ended == "broken"
    assert "closed its connection" in run.why_broken


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.5:7780", ("10.0.0.5", 7780)), ("[::1]:80", ("::1", 80))],
)
def test_address_is_parsed(text: str, address: tuple[str, int]) -> None:
    """IPv6 addresses are in brackets."""
    assert parse_host_port("--join", text) == address


@pytest.mark.parametrize("text", ["host", ":1", "host:", "host:x", "host:70000"])
def test_invalid_address_is_refused(text: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=f"--join {text}: must be HOST:PORT"):
        parse_host_port("--join", text)
