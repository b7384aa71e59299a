"""Rows 21 and 32: processes that may do no more in Redis than they need, and what they log.

A stack of its own runs as the Redis user that docs/security.md describes. People use it by socket
and by HTTP, rightly and wrongly; Redis then says what it refused, and the logs are searched.
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


def documented_rights() -> list[str]:
    """The words of the ACL in the documentation, after the user's name and password."""
    found = re.search(r"^ACL SETUSER chat on >password (.*?)\n```", DOCUMENT, re.M | re.S)
    assert found is not None
    return found[1].split()


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose processes are a Redis user with few rights."""
    env = dict(PATIENT)
    stack = Stack(tmp_path_factory.mktemp("confined"), "no", env)
    try:
        stack.start_servers()
        password = secrets.token_hex()
        with admin(stack) as client:
            words = ["SETUSER", USER, "on", f">{password}", *documented_rights()]
            client.execute_command("ACL", *words)
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
    """A client with all rights."""
    client: contextlib.AbstractContextManager[Any] = redis_client(stack.redis_url)
    return client


async def use(stack: Stack, words: dict[str, str]) -> None:
    """Do what people do, with these words in it, and some of it wrongly."""
    async with httpx.AsyncClient(base_url=stack.apis[0].endpoint, timeout=20) as web:
        ann, ben = f"ann-{secrets.token_hex(3)}", f"ben-{secrets.token_hex(3)}"
        granted = await register(web, ann, name=words["name"])
        await register(web, ben)
        mine = bearer(granted["token"])
        opened = await web.put(f"/v1/direct-chats/{ben}", headers=mine)
        chat = opened.json()["chat"]
        place = f"/v1/chats/{chat}/messages"
        for body in (words["text"], words["text"] + "\u0007", words["text"] * 4000):
            await web.post(place, json={"body": body}, headers=mine)
        await web.post(place, json={"bodi": words["text"]}, headers=mine)
        await web.post(place, content=words["text"].encode(), headers=mine)
        group = {"members": [ben], "name": words["group"]}
        assert (await web.post("/v1/chats", json=group, headers=mine)).status_code == 201
        await web.post("/v1/chats", json={**group, "name": words["group"] + "\u202e"}, headers=mine)
        file = {"name": words["file"] + "/", "size": 1, "sha256": "0" * 64}
        await web.post(f"/v1/chats/{chat}/attachments", json=file, headers=mine)
        push = {"token": words["push"]}
        await web.post("/v1/me/push-subscriptions", json=push, headers=mine)
        await post(web, ann, words["post"], mine)
        await web.get("/v1/chats", params={"cursor": words["text"]}, headers=mine)
        async with stack.chat_of(ann) as alice, stack.chat_of(ben) as bob:
            ack = await alice.ask_send(chat, "r1", words["text"], durability="stored")
            assert ack["durability"] == "stored"
            await bob.expect(lambda me: words["text"] in [m["body"] for m in me.messages(chat)])
            await alice.ask("edit", chat=chat, ref="e1", seq=ack["seq"], body=words["edit"])
            await alice.ask("react", chat=chat, ref="x1", seq=ack["seq"], emoji="👍")
            await bob.ask("mark", chat=chat, read=ack["seq"])
            await alice.tell("watch", users=[ben])
            await bob.tell("typing", chat=chat, on=True)
            await alice.expect_frame("signal", kind="typing")
            assert (await alice.ask("history", chat=chat))["messages"]
            await alice.ask("chats")
            for body in (words["text"] + "\u0000", words["text"] * 200):
                with contextlib.suppress(Failed):
                    await alice.ask_send(chat, secrets.token_hex(4), body)
            await bob.ask("report", chat=chat, seq=ack["seq"], reason=words["reason"])
            await alice.ask("block", user=ben)


async def post(web: httpx.AsyncClient, user: str, words: str, mine: dict[str, str]) -> None:
    """Post, like it, and wait until that is counted and in the timeline."""
    made = (await web.post("/v1/me/posts", json={"content": words}, headers=mine)).json()
    path = f"/v1/users/{user}/posts/{made['id']}"
    await web.post("/v1/me/posts", json={"content": words + "\u0007"}, headers=mine)
    assert (await web.put(f"{path}/like", headers=mine)).status_code == 204

    async def is_counted() -> bool:
        lines = (await web.get(f"/v1/users/{user}/timeline", headers=mine)).json()["items"]
        return bool(lines) and lines[0]["likes"] == 1

    await eventually(is_counted, what="the like is counted, and the post in the timeline")


async def test_row_32_redis_user_with_few_rights_is_enough(confined: Stack) -> None:
    """Redis refuses our processes nothing; and it would refuse what an intruder wants of it."""
    await use(confined, dict.fromkeys(KINDS, "plain"))

    with admin(confined) as client:

        def may(*words: str) -> bool:
            return client.execute_command("ACL", "DRYRUN", USER, *words) in (b"OK", "OK", True)

        assert client.execute_command("ACL", "LOG") == []
        assert may("XADD", "{p0}:backlog", "*", "a", "b")
        for words in (
            ("KEYS", "*"), ("FLUSHALL",), ("DEBUG", "OBJECT", "{p0}:epoch"), ("MODULE", "LIST"),
            ("CONFIG", "SET", "dir", "/tmp"), ("SHUTDOWN",), ("ACL", "LIST"), ("MONITOR",),
            ("RESTORE", "{p0}:x", "0", "x"), ("REPLICAOF", "NO", "ONE"), ("GET", "another"),
            ("SCRIPT", "FLUSH"), ("CLIENT", "KILL", "TYPE", "normal"), ("SLAVEOF", "NO", "ONE"),
        ):  # fmt: skip
            assert not may(*words), words


async def test_row_21_what_people_write_is_in_no_log(confined: Stack) -> None:
    """Texts, names of people, groups and files, reasons and push tokens, refused or not."""
    mark = secrets.token_hex(8)
    words = {kind: f"{kind}-{mark}" for kind in KINDS}

    await use(confined, words)

    await eventually(lambda: len(list(confined.folder.glob("*.log"))) >= 3)
    for path in confined.folder.glob("*.log"):
        said = path.read_text(errors="replace")
        assert mark not in said, (path.name, said[max(0, said.index(mark) - 300) :][:600])
