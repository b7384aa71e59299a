"""Rows 21 and 32: least privilege in Redis, and no user content in logs.

A separate stack runs with the Redis permissions of docs/security.md. Users send valid and invalid
requests over WebSocket and HTTP. Then the refusals of Redis and the logs are checked.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.security.support.users import bearer, register
from tests.support.rawchat import Failed
from tests.support.servers.processes import eventually, redis_client
from tests.support.stack import PATIENT, WORKERS, Stack

USER = "chat"
KINDS = ("name", "text", "group", "file", "push", "edit", "reason", "post")
DOCUMENT = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")


def documented_permissions() -> list[str]:
    """Return the ACL rules in the documentation, without user name and password."""
    found = re.search(r"^ACL SETUSER chat on >password (.*?)\n```", DOCUMENT, re.M | re.S)
    assert found is not None
    return found[1].split()


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose processes have only the documented Redis permissions."""
    env = dict(PATIENT)
    stack = Stack(tmp_path_factory.mktemp("restricted"), "no", env)
    try:
        stack.start_servers()
        password = secrets.token_hex()
        with admin(stack) as client:
            rules = ["on", f">{password}", *documented_permissions()]
            client.execute_command("ACL", "SETUSER", USER, *rules)
        env["CHAT_REDIS_URL"] = f"redis://{USER}:{password}@{stack.redis.launch.address}/0"
        stack.start_worker(
            *WORKERS,
            "notify",
            "counters",
            "timeline",
            **{"chatserver.features.social.worker.counters.FLUSH_S": "0.2"},
        )
        stack.start_gateway()
        stack.start_api(
            CHAT_AUTH_ARGON2_MEMORY_KIB="8", **{"chatserver.auth.passwords.ARGON2_PASSES": "1"}
        )
        yield stack
    finally:
        stack.stop()


def admin(stack: Stack) -> contextlib.AbstractContextManager[Any]:
    """Return a Redis client with all permissions."""
    client: contextlib.AbstractContextManager[Any] = redis_client(stack.redis_url)
    return client


async def use_all_features(stack: Stack, texts: dict[str, str]) -> None:
    """Send valid and invalid requests with these texts in all features."""
    async with httpx.AsyncClient(base_url=stack.apis[0].endpoint, timeout=20) as web:
        ann, ben = f"ann-{secrets.token_hex(3)}", f"ben-{secrets.token_hex(3)}"
        granted = await register(web, ann, name=texts["name"])
        await register(web, ben)
        mine = bearer(granted["token"])
        opened = await web.put(f"/v1/direct-chats/{ben}", headers=mine)
        chat = opened.json()["chat"]
        place = f"/v1/chats/{chat}/messages"
        for body in (texts["text"], texts["text"] + "\u0007", texts["text"] * 4000):
            await web.post(place, json={"body": body}, headers=mine)
        await web.post(place, json={"bodi": texts["text"]}, headers=mine)
        await web.post(place, content=texts["text"].encode(), headers=mine)
        group = {"members": [ben], "name": texts["group"]}
        assert (await web.post("/v1/chats", json=group, headers=mine)).status_code == 201
        await web.post("/v1/chats", json={**group, "name": texts["group"] + "\u202e"}, headers=mine)
        file = {"name": texts["file"] + "/", "size": 1, "sha256": "0" * 64}
        await web.post(f"/v1/chats/{chat}/attachments", json=file, headers=mine)
        push = {"token": texts["push"]}
        await web.post("/v1/me/push-subscriptions", json=push, headers=mine)
        await create_post(web, ann, texts["post"], mine)
        await web.get("/v1/chats", params={"cursor": texts["text"]}, headers=mine)
        async with stack.chat_of(ann) as alice, stack.chat_of(ben) as bob:
            ack = await alice.send_unrecorded(chat, "r1", texts["text"], durability="stored")
            assert ack["durability"] == "stored"
            await bob.expect(lambda me: texts["text"] in [m["body"] for m in me.messages(chat)])
            await alice.request("edit", chat=chat, ref="e1", seq=ack["seq"], body=texts["edit"])
            await alice.request("react", chat=chat, ref="x1", seq=ack["seq"], emoji="👍")
            await bob.request("mark", chat=chat, read=ack["seq"])
            await alice.send_frame("watch", users=[ben])
            await bob.send_frame("typing", chat=chat, on=True)
            await alice.expect_frame("signal", kind="typing")
            assert (await alice.request("history", chat=chat))["messages"]
            await alice.request("chats")
            for body in (texts["text"] + "\u0000", texts["text"] * 200):
                with contextlib.suppress(Failed):
                    await alice.send_unrecorded(chat, secrets.token_hex(4), body)
            await bob.request("report", chat=chat, seq=ack["seq"], reason=texts["reason"])
            await alice.request("block", user=ben)


async def create_post(web: httpx.AsyncClient, user: str, text: str, mine: dict[str, str]) -> None:
    """Create and like a post; wait until the timeline has it with its like count."""
    made = (await web.post("/v1/me/posts", json={"content": text}, headers=mine)).json()
    path = f"/v1/users/{user}/posts/{made['id']}"
    await web.post("/v1/me/posts", json={"content": text + "\u0007"}, headers=mine)
    assert (await web.put(f"{path}/like", headers=mine)).status_code == 204

    async def is_counted() -> bool:
        posts = (await web.get(f"/v1/users/{user}/timeline", headers=mine)).json()["items"]
        return bool(posts) and posts[0]["likes"] == 1

    await eventually(is_counted, what="the post is in the timeline with one like")


async def test_row_32_documented_redis_permissions_are_sufficient(restricted: Stack) -> None:
    """Redis refuses no command of our processes, but would refuse dangerous ones."""
    await use_all_features(restricted, dict.fromkeys(KINDS, "plain"))

    with admin(restricted) as client:

        def is_allowed(*command: str) -> bool:
            return client.execute_command("ACL", "DRYRUN", USER, *command) in (b"OK", "OK", True)

        assert client.execute_command("ACL", "LOG") == []
        assert is_allowed("XADD", "{p0}:backlog", "*", "a", "b")
        for command in (
            ("KEYS", "*"), ("FLUSHALL",), ("DEBUG", "OBJECT", "{p0}:epoch"), ("MODULE", "LIST"),
            ("CONFIG", "SET", "dir", "/tmp"), ("SHUTDOWN",), ("ACL", "LIST"), ("MONITOR",),
            ("RESTORE", "{p0}:x", "0", "x"), ("REPLICAOF", "NO", "ONE"), ("GET", "another"),
            ("SCRIPT", "FLUSH"), ("CLIENT", "KILL", "TYPE", "normal"), ("SLAVEOF", "NO", "ONE"),
        ):  # fmt: skip
            assert not is_allowed(*command), command


async def test_row_21_user_content_is_not_logged(restricted: Stack) -> None:
    """Messages, names, file names, reasons and push tokens of all requests are not logged."""
    mark = secrets.token_hex(8)
    texts = {kind: f"{kind}-{mark}" for kind in KINDS}

    await use_all_features(restricted, texts)

    await eventually(lambda: len(list(restricted.folder.glob("*.log"))) >= 3)
    for path in restricted.folder.glob("*.log"):
        log = path.read_text(errors="replace")
        assert mark not in log, (path.name, log[max(0, log.index(mark) - 300) :][:600])
