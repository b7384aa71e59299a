"""The comparison of load scripts with Locust runs as docs/load.md says."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.typescript import ROOT, TOOLS, locked, run

LOCK = ROOT / "deploy/dev/locust.lock"
FILE = ROOT / "docs/examples/locust/locustfile.py"


@functools.cache
def install() -> Path:
    """Install Locust, if its lock file has changed; return its command."""
    with locked():
        ready = TOOLS / "locust" / ".ready"
        if not ready.exists() or ready.read_bytes() != LOCK.read_bytes():
            run("sh", "deploy/dev/setup.sh", "locust", cwd=ROOT)
    return TOOLS / "locust" / "bin" / "locust"


@pytest.mark.timeout(300)
def test_locust_file_sends_messages_and_sees_their_delivery(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages arrive at the peers of their senders."""
    locust = install()
    monkeypatch.setenv("CHAT_AUTH_SECRET", stack.secret)
    out = tmp_path / "result"

    run(
        str(locust),
        *("-f", str(FILE), "--host", f"ws://127.0.0.1:{stack.port}/"),
        *("--headless", "--users", "8", "--spawn-rate", "8", "--run-time", "10s"),
        *("--json-file", str(out), "--exit-code-on-error", "0"),
        cwd=tmp_path,
    )

    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert row["name"] == "delivered"
    # A message may take longer than a second on a busy machine.
    assert row["num_requests"] > row["num_failures"]
