"""Unit tests that do I/O are detected."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.io_records import recorded_io

LISTENER = ("127.0.0.1", 0)


def run_process() -> None:
    subprocess.run([sys.executable, "--version"], capture_output=True, check=True, timeout=20)


def connect() -> None:
    with socket.socket() as bound, socket.socket(type=socket.SOCK_DGRAM) as client:
        bound.bind(LISTENER)
        client.connect(bound.getsockname())


async def start_server() -> None:
    server = await asyncio.start_server(lambda *_: None, *LISTENER)
    server.close()


def append_to_source() -> None:
    Path(__file__).open("a").close()


@pytest.mark.parametrize(
    ("call", "event"),
    [
        (run_process, "subprocess.Popen"),
        (connect, "socket.connect"),
        (lambda: asyncio.run(start_server()), "socket.bind"),
        (append_to_source, "open"),
    ],
)
def test_process_connection_or_written_file_is_recorded(
    call: Callable[[], None], event: str
) -> None:
    with recorded_io() as found:
        call()

    assert any(each.startswith(event) for each in found), found


def test_event_loop_temporary_files_and_reads_are_not_recorded(tmp_path: Path) -> None:
    with recorded_io() as found:
        asyncio.run(asyncio.sleep(0))
        (tmp_path / "file").write_text(Path(__file__).read_text("utf-8"))

    assert found == []
