"""A new request is one file: it works over WebSocket and HTTP, in both SDKs and in the documents.

`new_request/bans.py` is added to a copy of the product, and nothing else is changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import open_fork_server
from tests.support.servers.processes import HOST
from tests.support.stack import PATIENT, Stack, open_stack, start_async
from tests.support.typescript import PACKAGE, build, node

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "new_request"
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with the new request."""
    target = tmp_path_factory.mktemp("copy")
    for folder in ("chatserver", "workers", "deploy/documents", "tests/support", "docs"):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(EXAMPLE / "bans.py", target / "chatserver" / "requests")
    return target


def run(copy: Path, *command: str, cwd: Path | None = None) -> str:
    """Run a command with the sources of the copy; return its output."""
    env = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        command, cwd=cwd or copy, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(
        tmp_path_factory.mktemp("servers"), gateways=0, workers=(), fsync="no", env=PATIENT
    ) as made:
        yield made


@pytest.fixture(scope="module")
def documents(copy: Path) -> dict[str, Any]:
    """The documents of the copy, which replace those that were copied."""
    written: dict[str, Any] = {}
    for name, module in (
        ("asyncapi", "deploy.documents.asyncapi_document"),
        ("openapi", "chatserver.api.openapi_file"),
    ):
        text = run(copy, sys.executable, "-m", module)
        (copy / "docs" / f"{name}.json").write_text(text)
        written[name] = json.loads(text)
    return written


async def test_new_request_is_answered_over_websocket_and_http(copy: Path, servers: Stack) -> None:
    """Both give the same pages: the gateway forwards the frame, and the API calls the handler."""
    path = {"PYTHONPATH": str(copy)}
    await servers.add_users(["bob", "carol", "dave"])
    with open_fork_server(copy):
        gateway, api = servers.add_gateway(**path), servers.add_api(**path)
        for server in (gateway, api, servers.add_worker("rpc", "persist", **path)):
            await start_async(server)
        token = servers.token("alice")
        async with servers.chat_of("alice", port=gateway.launch.port) as alice:
            members = ["bob", "carol", "dave"]
            created = await alice.request("create_chat", ref="g", members=members)
            chat = created["chat"]["chat"]
            for user in ("carol", "bob"):
                await alice.request("ban_member", chat=chat, ref=f"ban-{user}", user=user)

        url = f"ws://{HOST}:{gateway.launch.port}"
        client = (sys.executable, str(EXAMPLE / "client.py"), url, token, chat)
        over_websocket = await asyncio.to_thread(run, copy, *client)
        route = f"http://{HOST}:{api.launch.port}/v1/chats/{chat}/banned-members?limit=1"
        first = await asyncio.to_thread(get_json, route, token)
        second = await asyncio.to_thread(get_json, f"{route}&cursor={first['next']}", token)

    assert over_websocket.split() == ["bob", "carol"]
    assert [each["user"] for page in (first, second) for each in page["items"]] == ["bob", "carol"]
    assert second["next"] is None


def get_json(url: str, token: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def test_new_request_is_in_the_documents(documents: dict[str, Any]) -> None:
    """Frame, reply and route have their fields, bounds and descriptions."""
    asyncapi, openapi = documents["asyncapi"], documents["openapi"]

    replies = asyncapi["operations"]["bans"]["reply"]["messages"]
    assert [each["$ref"].rpartition("/")[2] for each in replies] == ["BansPage", "Error"]
    assert asyncapi["components"]["schemas"]["Bans"]["properties"]["limit"]["maximum"] == 200
    route = openapi["paths"]["/v1/chats/{chat}/banned-members"]["get"]
    assert [each["name"] for each in route["parameters"]][:3] == ["chat", "limit", "cursor"]
    assert route["x-rule"] == "user or an API key with scope chats:read"


def test_new_request_is_typed_in_the_typescript_sdk(copy: Path, documents: dict[str, Any]) -> None:
    """The types of the SDK are generated from the documents, and a use of them compiles."""
    build()
    package = copy / "clients" / "typescript"
    package.mkdir(parents=True)
    for folder in ("scripts", "src"):
        shutil.copytree(PACKAGE / folder, package / folder)
    shutil.copy(EXAMPLE / "example.ts", package / "src")
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(PACKAGE / name, package)
    (package / "node_modules").symlink_to(PACKAGE / "node_modules")
    compiler = str(PACKAGE / "node_modules" / "typescript" / "bin" / "tsc")

    run(copy, node(), "scripts/generate_types.mjs", cwd=package)

    run(copy, node(), compiler, "-p", "tsconfig.json", "--noEmit", cwd=package)
