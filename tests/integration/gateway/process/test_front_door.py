"""The reverse proxy of deploy/compose: Caddy with its Caddyfile, in front of stub servers."""

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


class Proxy:
    """Caddy's ports, and the forwarded requests as (upstream, method, path, headers)."""

    def __init__(self) -> None:
        self.page_port, self.files_port, self.admin_port = (free_port() for _ in range(3))
        self.requests: list[tuple[str, str, str, dict[str, str]]] = []

    def request(self, port: int, method: str, path: str) -> int:
        """Send a request and return the status; the path is sent without normalization."""
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        connection.request(method, path, headers=SPOOFED)
        status = connection.getresponse().status
        connection.close()
        return status


def start_http(name: str, proxy: Proxy) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            proxy.requests.append((name, self.command, self.path, headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        # The standard library requires these names.
        do_GET = do_POST = do_DELETE = do_PUT = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start_gateway(proxy: Proxy) -> Server:
    def echo(connection: ServerConnection) -> None:
        assert connection.request is not None
        headers = {key.lower(): value for key, value in connection.request.headers.raw_items()}
        proxy.requests.append(("gateway", "GET", connection.request.path, headers))
        for message in connection:
            connection.send(message)

    server = serve(echo, HOST, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    gateway = start_gateway(proxy)
    api, objects = start_http("api", proxy), start_http("objects", proxy)
    ports = {
        "GATEWAY": gateway.socket.getsockname()[1],
        "API": api.server_port,
        "OBJECTS": objects.server_port,
    }
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PAGE_ADDRESS": f":{proxy.page_port}",
            "FILES_ADDRESS": f":{proxy.files_port}",
            "ADMIN_ADDRESS": f"localhost:{proxy.admin_port}",
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
            asyncio.run(eventually(lambda: is_open(proxy), what="Caddy"))
            yield proxy
        finally:
            caddy.terminate()
            caddy.wait(30)
            gateway.shutdown()
            for server in (api, objects):
                server.shutdown()
                server.server_close()


def is_open(proxy: Proxy) -> bool:
    try:
        return proxy.request(proxy.page_port, "GET", "/healthz") == 200
    except OSError:
        return False


def test_websockets_reach_the_gateway_and_other_requests_the_api(proxy: Proxy) -> None:
    """Both use one port, and a client cannot spoof its address with X-Forwarded-For."""
    proxy.requests.clear()
    with connect(f"ws://{HOST}:{proxy.page_port}/", additional_headers=SPOOFED) as socket:
        socket.send("hello")
        echoed = socket.recv(timeout=30)
    status = proxy.request(proxy.page_port, "POST", "/v1/login")

    assert echoed == "hello"
    assert status == 200
    assert [(upstream, path) for upstream, _, path, _ in proxy.requests] == [
        ("gateway", "/"),
        ("api", "/v1/login"),
    ]
    assert {headers["x-forwarded-for"] for *_, headers in proxy.requests} == {HOST}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/chatserver/attachments/d-1/f?X-Amz-Signature=1"),
        ("POST", "/chatserver"),
        ("POST", "/chatserver/"),
    ],
)
def test_presigned_urls_reach_the_bucket_unchanged(proxy: Proxy, method: str, path: str) -> None:
    """Path and host are part of the signature, so they must arrive unchanged."""
    proxy.requests.clear()

    status = proxy.request(proxy.files_port, method, path)

    assert status == 200
    ((upstream, received_method, received_path, headers),) = proxy.requests
    assert (upstream, received_method, received_path) == ("objects", method, path)
    assert headers["host"] == f"{HOST}:{proxy.files_port}"


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
def test_other_paths_and_methods_of_the_s3_server_return_404(
    proxy: Proxy, method: str, path: str
) -> None:
    """The emulator's admin API has no password, and only the server may change objects."""
    proxy.requests.clear()

    status = proxy.request(proxy.files_port, method, path)

    assert status == 404
    assert proxy.requests == []
