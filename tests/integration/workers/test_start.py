"""The start of a worker process: what it requires before it reports that it is ready."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psutil

from chatserver.features.registry import BACKGROUND_NICE
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import free_port
from tests.support.stack import open_stack

CLI = [sys.executable, "-m", "chatserver.cli.main", "worker", "persist"]
DEADLINE_S = 60
KEYS = {"CHAT_WARM_ACCESS_KEY": "local", "CHAT_WARM_SECRET_KEY": "local-secret"}


async def start_worker(
    tmp_path: Path, redis_url: str, dynamodb: str, **env: str
) -> tuple[int, str]:
    """Run a worker to its end; return the exit code and the output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CHAT_", "AWS_"))}
    process = await asyncio.create_subprocess_exec(
        *CLI,
        cwd=tmp_path,
        env=clean
        | {
            "CHAT_REDIS_URL": redis_url,
            "CHAT_WARM_ENDPOINT": dynamodb,
            "CHAT_WARM_REGION": "us-east-1",
            "CHAT_WARM_TABLE_PREFIX": "absent_",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "CHAT_TELEMETRY_METRICS_PORT": str(free_port()),
        }
        | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await wait_for_exit(process)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_worker_without_tables_exits_and_names_them(
    tmp_path: Path, redis_url: str, dynamodb: str
) -> None:
    """Each missing table is named once, with the command that creates it."""
    code, output = await start_worker(tmp_path, redis_url, dynamodb, **KEYS)

    assert code == 2
    for table in ("messages", "chat_session", "social", "directory"):
        line = f"table absent_{table} is missing; run `chatserver tables apply`"
        assert output.count(line) == 1, output
    assert "workers.ready" not in output
    assert "Traceback" not in output


async def test_worker_without_credentials_exits_and_names_the_settings(
    tmp_path: Path, redis_url: str, dynamodb: str
) -> None:
    """A process without credentials does not report that it is ready."""
    home = {"HOME": str(tmp_path)}
    code, output = await start_worker(tmp_path, redis_url, dynamodb, **home)

    assert code == 2
    assert "CHAT_WARM_ACCESS_KEY" in output
    assert "workers.ready" not in output
    assert "Traceback" not in output


def test_only_a_process_of_background_workers_has_a_low_priority(tmp_path: Path) -> None:
    """Nobody waits for their results, so that they do not delay other processes."""
    with open_stack(tmp_path) as stack:
        servers = [stack.start_worker("holds", "sweep"), stack.start_worker("persist", "sweep")]
        processes = [server.process for server in servers]
        nice = [psutil.Process(process.pid).nice() for process in processes if process is not None]

    base = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == [max(base, BACKGROUND_NICE), base]
