"""The door of deploy/compose: Caddy with our Caddyfile, in front of what stands in for the rest."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve

from tests.support.deployments import COMPOSE, find_tool
from tests.support.servers.processes import eventually, free_port

HOST = "127.0.0.1"
SPOOFED = {"X-Forwarded-For": "6.6.6.6"}


class Door:
    """Caddy's ports, and what came through: (who got it, method, path, headers)."""

    def __init__(self) -> None:
        self.page_port, self.files_port, self.admin_port = (free_port() for _ in range(3))
        self.seen: list[tuple[str, str, str, dict[str, str]]] = []

    def ask(self, port: int, method: str, path: str) -> int:
        """Return the status of an answer; nothing of the path is tidied up before it is sent."""
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        connection.request(method, path, headers=SPOOFED)
        status = connection.getresponse().status
        connection.close()
        return status


def start_http(name: str, door: Door) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            door.seen.append((name, self.command, self.path, headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        # Names that the standard library asks for.
        do_GET = do_POST = do_DELETE = do_PUT = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start_gateway(door: Door) -> Server:
    def echo(connection: ServerConnection) -> None:
        assert connection.request is not None
        headers = {key.lower(): value for key, value in connection.request.headers.raw_items()}
        door.seen.append(("gateway", "GET", connection.request.path, headers))
        for message in connection:
            connection.send(message)

    server = serve(echo, HOST, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    door = Door()
    gateway = start_gateway(door)
    api, objects = start_http("api", door), start_http("objects", door)
    ports = {
        "GATEWAY": gateway.socket.getsockname()[1],
        "API": api.server_port,
        "OBJECTS": objects.server_port,
    }
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PAGE_ADDRESS": f":{door.page_port}",
            "FILES_ADDRESS": f":{door.files_port}",
            "ADMIN_ADDRESS": f"localhost:{door.admin_port}",
            **{f"{name}_PORT": str(port) for name, port in ports.items()},
            **{f"{name}_HOST": HOST for name in ports},
        }
        with Path(home, "log").open("wb") as log:
            caddy = subprocess.Popen(
                [find_tool("caddy"), "run", "--adapter=caddyfile", f"--config={COMPOSE}/Caddyfile"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            asyncio.run(eventually(lambda: is_open(door), what="Caddy"))
            yield door
        finally:
            caddy.terminate()
            caddy.wait(30)
            gateway.shutdown()
            for server in (api, objects):
                server.shutdown()
                server.server_close()


def is_open(door: Door) -> bool:
    try:
        return door.ask(door.page_port, "GET", "/healthz") == 200
    except OSError:
        return False


def test_sockets_go_to_gateways_and_all_else_to_the_api(door: Door) -> None:
    """On one port; and no client can choose the address that it appears to come from."""
    door.seen.clear()
    with connect(f"ws://{HOST}:{door.page_port}/", additional_headers=SPOOFED) as socket:
        socket.send("hello")
        echoed = socket.recv(timeout=30)
    status = door.ask(door.page_port, "POST", "/v1/login")

    assert echoed == "hello"
    assert status == 200
    assert [(who, path) for who, _, path, _ in door.seen] == [
        ("gateway", "/"),
        ("api", "/v1/login"),
    ]
    assert {headers["x-forwarded-for"] for *_, headers in door.seen} == {HOST}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/chatserver/attachments/d-1/f?X-Amz-Signature=1"),
        ("POST", "/chatserver"),
        ("POST", "/chatserver/"),
    ],
)
def test_links_to_files_reach_the_bucket(door: Door, method: str, path: str) -> None:
    """As they were signed: path and host unchanged."""
    door.seen.clear()

    status = door.ask(door.files_port, method, path)

    assert status == 200
    ((who, seen_method, seen_path, headers),) = door.seen
    assert (who, seen_method, seen_path) == ("objects", method, path)
    assert headers["host"] == f"{HOST}:{door.files_port}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/_ministack/reset"),
        ("GET", "/"),
        ("GET", "/another-bucket/key"),
        ("GET", "/chatserver/../_ministack/reset"),
        ("GET", "/chatserver/%2e%2e/_ministack/reset"),
        ("GET", "/chatserver/..%2f_ministack/reset"),
        ("GET", "//chatserver/../_ministack/reset"),
        ("PUT", "/chatserver/key"),
        ("DELETE", "/chatserver/key"),
    ],
)
def test_nothing_else_of_the_s3_server_can_be_reached(door: Door, method: str, path: str) -> None:
    """Its administration asks for no password, and only our processes write and delete."""
    door.seen.clear()

    status = door.ask(door.files_port, method, path)

    assert status == 404
    assert door.seen == []
