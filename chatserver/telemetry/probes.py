"""Probe endpoints ``/metrics``, ``/healthz`` and ``/readyz``.

They are served on a separate address, never on a client-facing port. A separate thread serves them,
so ``/healthz`` responds even when the event loop is blocked.
"""

from __future__ import annotations

import functools
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from chatserver.errors import ConfigError
from chatserver.request_targets import to_origin_form
from chatserver.telemetry.metrics import READY

# If there is no heartbeat for this long, the event loop is stuck.
STUCK_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 5.0
STOP_POLL_S: Final = 3600.0  # check interval of `serve_forever`, which nothing stops

_OK, _UNAVAILABLE, _ABSENT = "200 OK", "503 Service Unavailable", "404 Not Found"
_TEXT: Final = [("Content-Type", "text/plain; charset=utf-8")]

FindProblem = Callable[[], str]


class Heartbeat:
    """Heartbeat of the event loop."""

    def __init__(self) -> None:
        self._recorded_at = time.monotonic()

    def record(self) -> None:
        """Record a heartbeat. Called from the event loop."""
        self._recorded_at = time.monotonic()

    def age_s(self) -> float:
        """Return the seconds since the last heartbeat. Thread-safe."""
        return time.monotonic() - self._recorded_at


HEARTBEAT: Final = Heartbeat()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def log_message(self, *_: Any) -> None:
        """Log nothing: probes arrive every few seconds."""


def make_app(
    find_problem: FindProblem, heartbeat: Heartbeat = HEARTBEAT
) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application.

    `find_problem` returns why the process is not ready, or an empty string. It is called in another
    thread, for each request to ``/readyz`` or ``/metrics``.
    """
    metrics = make_wsgi_app()

    def respond(path: str) -> tuple[str, str]:
        if path == "/healthz":
            age_s = heartbeat.age_s()
            if age_s > STUCK_S:
                return _UNAVAILABLE, f"the event loop has been stuck for {age_s:.0f} s\n"
            return _OK, "ok\n"
        if path == "/readyz":
            problem = find_problem()
            return (_UNAVAILABLE, f"{problem}\n") if problem else (_OK, "ok\n")
        return _ABSENT, "not found; the endpoints are /metrics, /healthz and /readyz\n"

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = to_origin_form(environ["PATH_INFO"])
        if path == "/metrics":
            READY.set(0 if find_problem() else 1)
            response: Iterable[bytes] = metrics(environ, start_response)
            return response
        status, text = respond(path)
        start_response(status, [*_TEXT])  # pass a copy, because wsgiref modifies the list
        return [text.encode()]

    return app


def serve_probes(host: str, port: int | None, find_problem: FindProblem = str) -> None:
    """Start serving the probe endpoints until the process ends; do nothing if `port` is None.

    Raises:
        ConfigError: the port is in use, or `host` is not an address of this machine.
    """
    if port is None:
        return
    try:
        server = make_server(host, port, make_app(find_problem), _Server, _Handler)
    except OSError as exc:
        raise ConfigError(
            f"telemetry.metrics_port: cannot listen on {host}:{port} ({exc})"
        ) from exc
    serve = functools.partial(server.serve_forever, poll_interval=STOP_POLL_S)
    threading.Thread(target=serve, name="probes", daemon=True).start()
