"""Removal of features: the core works without any feature, and the others without each feature."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Collection
from pathlib import Path

import pytest

from chatserver.features.registry import list_features
from tests.support.fork_server import CORE_TESTS, open_fork_server, run_process
from tests.support.servers.processes import HOST, eventually_equal
from tests.support.stack import PATIENT, Stack, open_stack, start_async

ROOT = Path(__file__).parents[3]
INSTALLED = "chatserver/features/__init__.py"
FEATURES = [feature.name for feature in list_features()]
# Tests of the core; one that imports from a removed feature fails.
FOLDERS = ("domain/access", "service", "workers")
TIMEOUT_S = 300.0


def with_dependants(name: str) -> set[str]:
    """Return a feature and all features that require it."""
    removed, before = {name}, set[str]()
    while removed != before:
        before = set(removed)
        removed |= {each.name for each in list_features() if removed & set(each.requires)}
    return removed


def copy_without(target: Path, removed: Collection[str], tests: str) -> None:
    """Copy the source; delete the folders of features and their lines in the list of features."""
    # Copy the bytecode too: it stays valid because the modification times are copied.
    for folder in ("chatserver", "workers", *tests.split()):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(ROOT / "tests" / "conftest.py", target / "tests")
    shutil.copy(ROOT / "pyproject.toml", target)
    for name in removed:
        shutil.rmtree(target / "chatserver" / "features" / name)
    lines = (target / INSTALLED).read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.strip() not in {f'"{name}",' for name in removed}]
    assert len(kept) == len(lines) - len(removed)
    (target / INSTALLED).write_text("".join(kept), "utf-8")


def check(copy: Path) -> subprocess.CompletedProcess[str]:
    """Import a copy, and build its containers and routes."""
    env = {**os.environ, "PYTHONPATH": str(copy), "CHATSERVER_PURE_PYTHON": "1"}
    return subprocess.run(
        CORE_TESTS, cwd=copy, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )


@pytest.mark.parametrize("name", FEATURES)
def test_other_features_work_without_a_feature(tmp_path: Path, name: str) -> None:
    """`test_layers.py` also checks imports in functions."""
    copy_without(tmp_path, with_dependants(name), "tests/support")

    done = check(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "code", "missing"),
    [
        ("service/history/sync.py", "import chatserver.features.pins", "chatserver.features.pins"),
        ("features/push/__init__.py", "FEATURE.ports['x'] = 'chatserver.x:x'", "chatserver.x"),
    ],
)
def test_missing_module_is_detected(tmp_path: Path, file: str, code: str, missing: str) -> None:
    """An import of a removed feature, or an unknown path that a feature registers."""
    copy_without(tmp_path, with_dependants("pins"), "tests/support")
    with (tmp_path / "chatserver" / file).open("a") as source:
        source.write(f"\n{code}\n")

    done = check(tmp_path)

    assert f"No module named '{missing}'" in done.stderr


async def test_server_without_features_starts_and_stores_messages(tmp_path: Path) -> None:
    """The core tests pass in the same copy."""
    copy = tmp_path / "copy"
    copy_without(copy, FEATURES, "tests/support tests/unit")
    with (
        open_fork_server(copy),
        open_stack(tmp_path, gateways=0, workers=(), fsync="no", env=PATIENT) as servers,
    ):
        await check_server(servers, copy)


async def check_server(servers: Stack, copy: Path) -> None:
    """Run the core tests of a copy, and send a message through its processes."""
    path = {"PYTHONPATH": str(copy)}
    gateway, api = servers.add_gateway(**path), servers.add_api(**path)
    worker = servers.add_worker("persist", "rpc", "repair", **path)
    await servers.add_users(["bob"])

    core_tests = [*CORE_TESTS, *(f"tests/unit/{each}" for each in FOLDERS)]
    env = {**os.environ, **path, "HYPOTHESIS_PROFILE": "few"}
    done, *_ = await asyncio.gather(
        asyncio.to_thread(run_process, core_tests, env, TIMEOUT_S),
        *map(start_async, (gateway, api, worker)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    async with servers.chat_of("alice", port=gateway.launch.port) as device:
        opened = await device.request("open_direct", user="bob")
        chat = opened["chat"]["chat"]
        await device.send(chat, "hello")

    await eventually_equal(
        lambda: servers.read_warm(chat), ["hello"], of=lambda rows: [row.body for row in rows]
    )
    url = f"http://{HOST}:{api.launch.port}/v1/chats/{chat}/messages"
    token = servers.token("bob")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert b'"hello"' in answer.read()
    for server in (gateway, api, worker):
        server.stop()
