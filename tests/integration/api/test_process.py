"""`chatserver api` as a process: start, invalid input, log output and shutdown."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from chatserver.dev.servers import is_http_ready
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import eventually, free_port

Start = Callable[..., subprocess.Popen[str]]
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def start_api(redis_url: str) -> Iterator[Start]:
    """A function that starts an API process with Redis but without DynamoDB."""
    started: list[subprocess.Popen[str]] = []

    def start(**settings: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "chatserver.cli.main", "api"],
            env=kept | {"CHAT_AUTH_SECRET": SECRET, "CHAT_REDIS_URL": redis_url} | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=EXIT_S)


DEADLINE_S = 60


async def wait_until_healthy(port: int) -> None:
    await eventually(lambda: is_http_ready(port, "/healthz"), DEADLINE_S, "the API is healthy")


async def start_healthy(start_api: Start, **settings: str) -> tuple[subprocess.Popen[str], int]:
    """Start an API that serves; return it and its port."""
    port = free_port()
    process = start_api(CHAT_API_PORT=str(port), **settings)
    await wait_until_healthy(port)
    return process, port


async def test_api_after_sigterm_exits_with_0_and_frees_its_port(start_api: Start) -> None:
    """All output up to the exit is JSON lines."""
    process, port = await start_healthy(start_api)

    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0
    assert all(line.startswith("{") for line in output.splitlines()), output
    assert "api.ready" in output and "api.stopped" in output
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_api_on_a_port_in_use_prints_the_address(start_api: Start) -> None:
    """The process prints an error message and no traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        output, _ = start_api(CHAT_API_PORT=str(port)).communicate(timeout=DEADLINE_S)

    assert f"127.0.0.1:{port}" in output
    assert "Traceback" not in output


async def test_api_survives_invalid_http(start_api: Start) -> None:
    """Random bytes, a huge header and an early end of input close only their own connection."""
    _, port = await start_healthy(start_api)

    for data in (b"\x16\x03\x01\x00\xff" * 100, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, b""):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.settimeout(20)
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(4096)
            except ConnectionError:
                answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")

    await wait_until_healthy(port)


async def test_api_responses_do_not_name_the_software(start_api: Start) -> None:
    """There is no Server header and no error page of the framework."""
    _, port = await start_healthy(start_api)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    connection.request("GET", "/nothing-here")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()

    assert answer.status == 404
    assert answer.getheader("Server") is None
    assert answer.getheader("Content-Type") == "application/problem+json"
    assert b"litestar" not in body.lower()


async def test_api_log_has_no_token(start_api: Start) -> None:
    """A token in a path, a query or a malformed header is not logged."""
    process, port = await start_healthy(start_api, CHAT_API_DEMO_USERS='["alice"]')
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    canary = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
    for path in (f"/v1/{canary}", f"/v1/dev/login?token={canary}"):
        connection.request("POST", path, b'{"user":"nobody"}', {"Authorization": canary})
        connection.getresponse().read()
    connection.close()

    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=DEADLINE_S)

    assert "request.refused" in output
    assert "eyJ" not in output
