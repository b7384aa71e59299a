"""/metrics, /healthz and /readyz, as monitoring requests them."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from chatserver.errors import ConfigError
from chatserver.telemetry.probes import HEARTBEAT, serve_probes
from tests.support.servers.processes import free_port


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def test_probes_return_readiness_health_and_metrics() -> None:
    """A process that is not ready returns its problem; an unknown path is 404."""
    port, problems = free_port(), [""]
    HEARTBEAT.record()  # no event loop does this here
    serve_probes("127.0.0.1", port, lambda: problems[0])

    ready = get(port, "/readyz")
    problems[0] = "Redis is unavailable"
    unready = get(port, "/readyz")

    assert ready == (200, "ok\n")
    assert unready == (503, "Redis is unavailable\n")
    assert get(port, "/healthz") == (200, "ok\n")
    assert "chatserver_connections" in get(port, "/metrics")[1]
    assert get(port, "/")[0] == 404


def test_probes_on_a_port_in_use_name_the_setting() -> None:
    """A process that cannot be monitored does not start."""
    port = free_port()
    serve_probes("127.0.0.1", port)

    with pytest.raises(ConfigError) as caught:
        serve_probes("127.0.0.1", port)

    assert "telemetry.metrics_port" in caught.value.problems[0]
