"""The archive in a complete stack: history during archiving, erasure and queries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
import zstandard

from tests.integration.features.privacy.support import (
    PASSWORD,
    TIMEOUT_S,
    Person,
    Vault,
    open_vault,
    wait_for_erasure,
)
from tests.support.rawchat import RawChat
from tests.support.scan import iter_logs, iter_redis, iter_tables
from tests.support.servers.processes import eventually

# The timeout includes the start of a whole stack.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

COUNT = 600
DEADLINE_S = 90.0  # for workers and readers on a slow machine
HOT_ENTRIES_MAX = 10
SETTINGS = {
    "CHAT_REDIS_LOG_MAX": str(HOT_ENTRIES_MAX),
    "CHAT_REDIS_INBOX_MAX": str(HOT_ENTRIES_MAX),
    "CHAT_ARCHIVE_RETENTION_S": "1",
    "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.1",
    "workers.archive.LEASE_S": "1",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN": "1",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MAX": "50",
    "CHAT_ARCHIVE_WAIT_S": "0",
    # With ARCHIVE_REMOVAL=ttl, the tests use TTL, which the product's sweeper replaces here.
    "CHAT_ARCHIVE_REMOVAL": os.environ.get("ARCHIVE_REMOVAL", "worker"),
    "CHAT_ARCHIVE_TTL_MARGIN_S": "2",
    "CHAT_ARCHIVE_TTL_SWEEP": "true",
}
# Failpoints at which the first workers are killed, each after it archived entries.
KILLS = ("archive.after_object", "archive.after_commit")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def vault(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vault]:
    """A stack that keeps little data in Redis; the tests start its archive worker."""
    async with open_vault(tmp_path_factory.mktemp("archive"), **SETTINGS) as made:
        yield made


@contextlib.asynccontextmanager
async def open_users(vault: Vault, *stems: str) -> AsyncIterator[list[Person]]:
    """Create users with accounts."""
    async with httpx.AsyncClient(base_url=vault.api.endpoint, timeout=TIMEOUT_S) as client:
        made = [Person(client, f"{stem}-{secrets.token_hex(4)}") for stem in stems]
        for person in made:
            await person.register()
        yield made


def device_of(vault: Vault, person: Person) -> RawChat:
    """Return a device that is not connected yet."""
    return RawChat(person.user, vault.stack.port, lambda _: person.token)


def objects_of(vault: Vault, chat: str) -> dict[str, bytes]:
    """Return the objects of a chat's archive, decompressed without the product's code."""
    unpack = zstandard.ZstdDecompressor().decompress
    prefix = f"archive/v1/{chat}/"
    return {key: unpack(data) for key, data in vault.iter_objects() if key.startswith(prefix)}


async def read_pages(device: RawChat, chat: str, *, is_down: bool) -> tuple[list[Any], set[str]]:
    """Read all pages of a chat; return its messages, oldest first, and the tiers of the pages."""
    found: list[Any] = []
    tiers: set[str] = set()
    window: dict[str, Any] = {} if is_down else {"after": 0}
    while True:
        page = await device.request("history", chat=chat, limit=40, **window)
        tiers.add(page["tier"])
        found = page["messages"] + found if is_down else found + page["messages"]
        if not page["more"]:
            return found, tiers
        edge = page["messages"][0 if is_down else -1]
        window = {"before" if is_down else "after": edge["seq"], "ts": edge["ts"]}


def immutable_fields(message: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a message that never change."""
    return tuple(message[name] for name in ("seq", "ts", "mid", "sender", "ref", "body"))


async def send_all(device: RawChat, chat: str, count: int) -> list[tuple[Any, ...]]:
    """Send messages; return the immutable fields that every reader must get."""
    sent = []
    for start in range(0, count, 50):
        bodies = [f"message {n} ⟨é⟩ " + "x" * (n % 90) for n in range(start, start + 50)]
        acks = await asyncio.gather(*(device.send(chat, body) for body in bodies))
        sent += [
            (ack["seq"], ack["ts"], ack["mid"], device.user, ack["ref"], body)
            for ack, body in zip(acks, bodies, strict=True)
        ]
    return sorted(sent)


async def test_history_during_archiving_with_killed_workers_is_complete(
    vault: Vault,
) -> None:
    """In both directions over all three tiers, each message is read once and unchanged."""
    async with open_users(vault, "ann", "ben") as (ann, ben):
        chat = await ann.open_direct(ben.user)
        async with device_of(vault, ann) as sender, device_of(vault, ben) as reader:
            sent = await send_all(sender, chat, COUNT)
            tiers: set[str] = set()
            reads = 0

            async def read_on() -> None:
                nonlocal reads
                while True:
                    for is_down in (True, False):
                        found, seen = await read_pages(reader, chat, is_down=is_down)
                        tiers.update(seen)
                        assert [immutable_fields(each) for each in found] == sent
                        reads += 1

            reading = asyncio.create_task(read_on())
            for kill in KILLS:
                more = {"CHAT_FAILPOINT": f"{kill}:kill:3"}
                killed = await vault.stack.start_worker_async("archive", **more)
                await eventually(
                    lambda killed=killed: reading.done() or killed.process.poll() is not None,
                    DEADLINE_S,
                    what=kill,
                )
            worker = await vault.stack.start_worker_async("archive")

            async def is_archived() -> bool:
                left = await vault.stack.read_warm(chat)
                return reading.done() or not left

            await eventually(is_archived, DEADLINE_S, what="all messages are archived")
            reads_after = reads + 2
            await eventually(lambda: reading.done() or reads >= reads_after, DEADLINE_S)
            worker.kill()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            ack = await sender.send(chat, "one more")

    stored = objects_of(vault, chat)
    assert tiers == {"hot", "warm", "cold"}
    assert ack["seq"] == COUNT + 1
    assert sum(data.count(b"\n") - 1 for data in stored.values()) == COUNT


async def test_erasure_with_a_killed_worker_removes_texts_from_the_archive(vault: Vault) -> None:
    """No object has a text of the erased user. Seqs and texts of others remain."""
    mark = f"canary{secrets.token_hex(8)}"
    async with open_users(vault, "zoe", "bob") as (zoe, bob):
        chat = await zoe.open_direct(bob.user)
        for n in range(6):
            seq = await zoe.send(chat, f"word {n} {mark}")
            await bob.send(chat, f"answer {n}")
        await zoe.request(
            "PATCH", f"/v1/chats/{chat}/messages/{seq}", 200, {"body": f"edit {mark}"}
        )
        for n in range(HOT_ENTRIES_MAX):
            await bob.send(chat, f"later {n}")
        worker = await vault.stack.start_worker_async("archive")
        await eventually(
            lambda: mark.encode() in b"".join(objects_of(vault, chat).values()), DEADLINE_S
        )

        async def is_archived() -> bool:
            return not await vault.stack.read_warm(chat)

        await eventually(is_archived)
        later = await zoe.send(chat, f"after that {mark}")
        receipt = await zoe.request("DELETE", "/v1/me", 202, {"password": PASSWORD})
        killed = await vault.stack.start_worker_async(
            "erasures", CHAT_FAILPOINT="erasure.in_archive:kill"
        )
        await eventually(
            lambda: killed.process is None or killed.process.poll() is not None, DEADLINE_S
        )
        second = vault.start_worker("erasures")
        zoe.token = ""
        await wait_for_erasure(bob.client, receipt["receipt"])
        await eventually(is_archived)
        page = await bob.request("GET", f"/v1/chats/{chat}/messages?limit=100")
        second.kill()
        worker.kill()

    stacked = (iter_logs(vault.stack), iter_redis(vault.stack), iter_tables(vault.stack))
    held = [name for found in stacked for name, content in found if mark.encode() in content]
    stored = objects_of(vault, chat)
    assert held == []
    assert mark.encode() not in b"".join(stored.values())
    assert page["messages"][1]["body"] == "answer 0"
    assert [each["seq"] for each in page["messages"]] == list(
        range(1, page["messages"][-1]["seq"] + 1)
    )
    deleted = {each["seq"] for each in page["messages"] if each.get("deleted")}
    assert {1, 3, 5, 7, 9, 11, later} <= deleted


async def list_seqs(person: Person, path: str, query: str = "") -> list[int]:
    """Read all pages of a list; return the seqs."""
    found: list[int] = []
    cursor = ""
    while True:
        page = await person.request("GET", f"{path}?limit=3{query}{cursor}")
        found += [each["seq"] for each in page["items"]]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


async def test_queries_of_an_archived_chat_respect_membership_and_changes(vault: Vault) -> None:
    """Members read from their join on; deleted, hidden and edited messages as in other tiers."""
    async with open_users(vault, "ida", "joe", "kim") as (ida, joe, kim):
        chat = (await ida.request("POST", "/v1/chats", 201, {"members": [kim.user]}))["chat"]
        await ida.request("PATCH", f"/v1/chats/{chat}", 200, {"joining": "open"})
        early = [await ida.send(chat, f"early {n}") for n in range(4)]
        await joe.request("POST", f"/v1/chats/{chat}/join", 200, {})
        pair = await ida.open_direct(joe.user)
        direct = [await ida.send(pair, f"direct {n}") for n in range(4)]
        later = [await ida.send(chat, f"later {n}") for n in range(8)]
        worker = await vault.stack.start_worker_async("archive")

        async def is_archived() -> bool:
            return not (await vault.stack.read_warm(chat) or await vault.stack.read_warm(pair))

        await eventually(is_archived, DEADLINE_S)
        worker.kill()
        messages = f"/v1/chats/{chat}/messages"
        archived = await list_seqs(joe, f"{messages}/between")
        await ida.request("DELETE", f"{messages}/{later[0]}", 200)
        await ida.request("PATCH", f"{messages}/{later[1]}", 200, {"body": "edited"})
        await joe.request("DELETE", f"{messages}/{later[2]}?for=me", 200)

        for name in ("between", "active"):
            assert await list_seqs(ida, f"{messages}/{name}") == [*later[:0:-1], *early[::-1]]
            other = await list_seqs(joe, f"{messages}/{name}")
            assert other == [*later[:2:-1], later[1]]
        oldest = await joe.request("GET", f"{messages}/between?order=oldest&limit=1")
        newest = await ida.send(pair, "not archived")
        await eventually(lambda: vault.stack.read_warm(pair), DEADLINE_S, what="it is stored")
        sent = await list_seqs(ida, "/v1/me/sent")
        received = await list_seqs(joe, "/v1/me/received")
        received_oldest = await list_seqs(joe, "/v1/me/received", "&order=oldest")

    assert archived == later[::-1]
    assert oldest["items"][0]["body"] == "edited"
    assert sent == [newest, *later[:0:-1], *direct[::-1], *early[::-1]]
    assert received == [newest, *direct[::-1]]
    assert received_oldest == received[::-1]
