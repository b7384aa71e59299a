"""Companion sessions in exports and erasures."""

from __future__ import annotations

import io
import json
import secrets
import time
import zipfile
from collections.abc import Callable

import httpx
import pytest

from chatserver.api.message_sending import send_message
from chatserver.config import load_settings
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.features.companions.model import SessionSummary
from chatserver.features.companions.user_memory import (
    ExtractionTimes,
    MemoryChange,
    Source,
    apply_changes,
)
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.companions.warm.user_memories import MemoryRows
from chatserver.protocol import frames
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.features.companions.support import make_companion
from tests.integration.features.privacy.support import PASSWORD, Person, Vault, wait_for_erasure
from tests.support.scan import iter_redis, iter_tables

pytest_plugins = ["tests.integration.features.privacy.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
NewPerson = Callable[[str], Person]


async def send_as_companion(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, companion: str, chat: str, body: str
) -> None:
    """Commit a message as a companion, like the assistant worker."""
    for name, value in vault.stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CHAT_WEBHOOKS_BEFORE_SEND_URL", raising=False)
    async with open_storage_container(
        role="api", settings=load_settings(), clock=SystemClock()
    ) as container:
        frame = frames.Send(0, chat, f"answer-{secrets.token_hex(4)}", body)
        await send_message(container, UserId(companion), frame)


def find(vault: Vault, mark: str) -> list[str]:
    """Return the names of the Redis keys and DynamoDB items that contain a mark."""
    stores = (iter_redis(vault.stack), iter_tables(vault.stack))
    return [name for found in stores for name, content in found if mark.encode() in content]


async def test_sessions_are_exported_and_erased_with_all_messages(
    vault: Vault, new_person: NewPerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export has the AI responses. After the erasure, Redis and DynamoDB have no text."""
    zoe, mark = new_person("zoe"), secrets.token_hex(8)
    await zoe.register()
    ada = (await make_companion(vault.stack, f"ai-{secrets.token_hex(4)}")).id
    path = f"/v1/companions/{ada}/session"
    chats = [(await zoe.request("POST", path, 201, {}))["session"]["chat"]]
    await send_as_companion(vault, monkeypatch, ada, chats[0], f"first response {mark}")
    chats.append((await zoe.request("POST", f"{path}/renewal", 201, {}))["session"]["chat"])
    await send_as_companion(vault, monkeypatch, ada, chats[1], f"second response {mark}")
    async with open_dynamodb(vault.stack.warm) as dynamodb:
        memory = SessionSummary(Seq(1), Seq(1), f"a summary: {mark}", 1)
        await Summaries(dynamodb).put(ChatId(chats[0]), memory)
        source, now_ms = Source(ChatId(chats[0]), 1, 1), int(time.time() * 1000)
        await MemoryRows(dynamodb).update(
            UserId(zoe.user),
            ada,
            lambda before: apply_changes(
                before,
                [MemoryChange("add", f"a fact: {mark}")],
                source,
                ExtractionTimes(now_ms, 10**9),
            ),
        )
    worker = vault.start_worker("exports", "erasures")

    await zoe.request("POST", "/v1/me/export", 202)
    export = await zoe.wait_for_export()
    async with httpx.AsyncClient(timeout=30) as client:
        archive = zipfile.ZipFile(io.BytesIO((await client.get(export["url"])).content))
    assert find(vault, mark)
    receipt = (await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD}))["receipt"]
    done = await wait_for_erasure(zoe.client, receipt)
    worker.stop()

    sessions, answers, memories = (
        archive.read(f"{name}.jsonl").decode() for name in ("sessions", "answers", "memories")
    )
    (line,) = map(json.loads, memories.splitlines())
    assert (line["companion"], line["text"]) == (ada, f"a fact: {mark}")
    kept = {line["chat"]: line.get("memory") for line in map(json.loads, sessions.splitlines())}
    assert kept == {
        chats[0]: {"first": 1, "upto": 1, "summary": f"a summary: {mark}"},
        chats[1]: None,
    }
    assert answers.count(mark) == 2
    assert find(vault, mark) == []
    tables = [(name, content) for name, content in iter_tables(vault.stack) if "session" in name]
    assert tables and zoe.user.encode() not in b"".join(content for _, content in tables)
    counts = {line["what"]: line["count"] for line in done["steps"]}
    assert counts["sessions with companions"] == 2
    assert counts["companion responses whose text was deleted"] == 2
