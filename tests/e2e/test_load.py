"""`chatserver load` against a server with a fault, a slow server, and no server."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatserver.cli import load
from chatserver.dev import command, data_folder
from tests.support.load_command import SECRET, run_load, run_stub
from tests.support.stack import Stack, start_async


@pytest.fixture
async def stub_url() -> AsyncIterator[str]:
    async with run_stub() as url:
        yield url


async def test_load_with_a_killed_gateway_reports_no_loss(stack: Stack, tmp_path: Path) -> None:
    """A mixed load from two processes: after a gateway is killed, its users reconnect."""
    fleet = stack.add_fleet(2)
    await start_async(fleet)
    # Long enough that the kill is within the load even if its first line is read late.
    args = ["mixed", "--processes", "2", "--users", "32", "--rate", "40", "--duration", "12"]
    args += ["--large-members", "16", "--settle", "60"]
    try:
        async with run_load(
            tmp_path, f"ws://127.0.0.1:{fleet.port}/", *args, secret=stack.secret
        ) as run:
            await run.wait_for_output(b"   1 s  offered")
            fleet.children[0].kill()
            code, result = await run.end()
    finally:
        fleet.kill()
        stack.gateways.remove(fleet)

    counts = result["counts"]
    assert code == 0, run.output
    assert result["verdict"] == {"is_ok": True, "broken": []} and result["ended"] == "done"
    assert (counts["lost"], counts["unacked"], counts["unsent"]) == (0, 0, 0)
    assert counts["delivered"] >= counts["expected"] > 0
    assert counts["reconnects"] > 0
    assert result["schema"] == 1 and result["tool"]["processes"] == 2
    assert result["target"]["processes"]["gateway"]
    assert run.report.read_text().startswith("<!doctype html>")


async def test_load_interrupted_and_too_slow_exits_with_1_and_reports(
    stub_url: str, tmp_path: Path
) -> None:
    """After Ctrl-C, pending messages are awaited and the thresholds are checked and reported."""
    args = ["direct", "--users", "4", "--duration", "600", "--max-p99-ms", "0.000001"]

    async with run_load(tmp_path, stub_url, *args) as run:
        await run.wait_for_output(b"   1 s  offered")
        run.process.send_signal(signal.SIGINT)
        code, result = await run.end()

    assert code == 1, run.output
    assert result["ended"] == "interrupted"
    assert result["counts"]["acked"] == result["counts"]["sent"]
    assert b"BROKEN  " in run.output and not result["verdict"]["is_ok"]
    assert run.report.read_text().startswith("<!doctype html>")


async def test_load_without_server_exits_with_2(tmp_path: Path) -> None:
    """Without a server, nothing is measured or reported."""
    async with run_load(tmp_path, "ws://127.0.0.1:9/", "direct", "--users", "4") as run:
        code, result = await run.end()

    assert code == 2
    assert b"no gateway at ws://127.0.0.1:9/" in run.output and b"Traceback" not in run.output
    assert b"ceiling" not in run.output, "the baseline was measured before the gateway was checked"
    assert result == {}


def test_load_defaults_match_those_of_dev(tmp_path: Path) -> None:
    """After `make run` no option is needed: folder, file, format and port are the same."""
    defaults = {one.name: one.default for one in command.dev.params}
    written = {"CHAT_AUTH_SECRET": SECRET, "CHAT_COLD_ORIGINS": """["it's # = one"]"""}
    data = data_folder.DataFolder.open(tmp_path / "data")
    data.write_settings(written)
    data.close()

    read = load.read_exports((data.path / load.DEV_SETTINGS).read_text())

    assert read == written
    assert defaults["data"] == load.DEV_DATA
    assert data_folder.SETTINGS == load.DEV_SETTINGS
    assert f":{defaults['gateway_port']}/" in load.URL
