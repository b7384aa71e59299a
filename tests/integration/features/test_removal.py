"""Removal of features: without a feature's folder, the core tests pass and the server works."""

from __future__ import annotations

import asyncio
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatserver.features.registry import list_features
from tests.support.fork_server import CORE_TESTS, open_fork_server, run_process
from tests.support.servers.processes import HOST, eventually
from tests.support.stack import PATIENT, Stack, open_stack, start_async

ROOT = Path(__file__).parents[3]
INSTALLED = "chatserver/features/__init__.py"
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


def copy_without(target: Path, removed: set[str]) -> None:
    """Copy the source; delete the folders of features and their lines in the list of features."""
    # Copy the bytecode too: it stays valid because the modification times are copied.
    for folder in ("chatserver", "workers", "tests/support", "tests/unit"):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(ROOT / "tests" / "conftest.py", target / "tests")
    shutil.copy(ROOT / "pyproject.toml", target)
    for name in removed:
        shutil.rmtree(target / "chatserver" / "features" / name)
    lines = (target / INSTALLED).read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.strip() not in {f'"{name}",' for name in removed}]
    assert len(kept) == len(lines) - len(removed)
    (target / INSTALLED).write_text("".join(kept), "utf-8")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Redis and DynamoDB; each test starts the processes of its copy on them."""
    with open_stack(
        tmp_path_factory.mktemp("removal"), gateways=0, workers=(), fsync="no", env=PATIENT
    ) as made:
        yield made


@pytest.mark.parametrize("name", [feature.name for feature in list_features()])
async def test_server_without_a_feature_starts_and_stores_messages(
    servers: Stack, tmp_path: Path, name: str
) -> None:
    """The core tests pass in the same copy."""
    copy_without(tmp_path, with_dependants(name))
    with open_fork_server(tmp_path):
        await check_copy(servers, tmp_path, name)


async def check_copy(servers: Stack, copy: Path, name: str) -> None:
    """Run the core tests of a copy, and send a message through its processes."""
    path = {"PYTHONPATH": str(copy)}
    gateway, api = servers.add_gateway(**path), servers.add_api(**path)
    worker = servers.add_worker("persist", "rpc", "repair", **path)
    alice, bob = f"alice-{name}", f"bob-{name}"
    await servers.add_users([bob])

    core_tests = [*CORE_TESTS, *(f"tests/unit/{each}" for each in FOLDERS)]
    env = {**os.environ, **path, "HYPOTHESIS_PROFILE": "few"}
    done, *_ = await asyncio.gather(
        asyncio.to_thread(run_process, core_tests, env, TIMEOUT_S),
        *map(start_async, (gateway, api, worker)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    async with servers.chat_of(alice, port=gateway.launch.port) as device:
        opened = await device.request("open_direct", user=bob)
        chat = opened["chat"]["chat"]
        await device.send(chat, "hello")

    async def is_stored() -> bool:
        return [row.body for row in await servers.read_warm(chat)] == ["hello"]

    await eventually(is_stored)
    url = f"http://{HOST}:{api.launch.port}/v1/chats/{chat}/messages"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {servers.token(bob)}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert b'"hello"' in answer.read()
    for server in (gateway, api, worker):
        server.stop()
