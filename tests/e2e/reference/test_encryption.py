"""Client-side encryption with one key per tenant, as in the DynamoDB Developer Guide."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from boto3.dynamodb.types import Binary  # type: ignore[import-untyped]

from tests.e2e.reference.support import PASSWORD, Client, Server, open_api, wait_for
from tests.support.fork_server import CLI, start_process


@contextlib.contextmanager
def run_worker(server: Server, **settings: str) -> Iterator[None]:
    with Path(os.devnull).open("wb") as output:
        process = start_process([*CLI, "worker", "all"], {**server.environment, **settings}, output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def log_in(port: int) -> Client:
    body = {"user": f"user-{secrets.token_hex(4)}", "password": PASSWORD}
    return Client(port, Client(port).post("/v1/auth/register", body)["token"])


def test_tenant_bodies_are_encrypted_until_the_key_is_deleted(
    server: Server, tmp_path: Path
) -> None:
    """Items contain no plain text, but history does.

    Without the key, messages appear as deleted.
    """
    keys = tmp_path / "keys"
    keys.write_text(server.command("encryption", "new-key"))
    settings = {
        "CHAT_WARM_TENANT": "vault",
        "CHAT_REDIS_URL": server.redis_url(2),
        "CHAT_ENCRYPTION_PROVIDER": "file",
        "CHAT_ENCRYPTION_KEY_FILE": os.fspath(keys),
        "CHAT_ENCRYPTION_CACHE_S": "1",
        "CHAT_ARCHIVE_RETENTION_S": "0",
    }
    texts = [f"the harpsichord costs {number}" for number in range(20)]
    server.command("tables", "apply", **settings)
    with run_worker(server, **settings), open_api(server, **settings) as port:
        ann, ben = log_in(port), log_in(port)
        chat = str(ann.put(f"/v1/direct-chats/{ben.get('/v1/me')['user']}")["chat"])
        for text in texts:
            ann.post(f"/v1/chats/{chat}/messages", {"body": text})

        items = wait_for(
            lambda: stored if len(stored := server.messages(f"vault/{chat}")) == 20 else None,
            "all messages are stored",
        )

        assert all(isinstance(item["body"], Binary) for item in items)
        assert b"harpsichord" not in repr(items).encode()
        assert texts_of(ann, chat) == texts
        assert "active" in server.command("encryption", "status", **settings)
        with redis.Redis.from_url(settings["CHAT_REDIS_URL"]) as hot:
            hot.flushdb()
        wait_for(lambda: texts_of(ben, chat) == texts, "the history is read from DynamoDB")

        printed = server.command("encryption", "shred", "--tenant", "vault", "--yes", **settings)

        assert printed == "deleted 1 data key of vault\n"

        def are_lost() -> bool:
            found = messages_of(ben, chat)
            return len(found) == 20 and all(each.get("shredded") for each in found)

        wait_for(are_lost, "the messages are deleted ones")
        assert all(each["deleted"] and each["body"] == "" for each in messages_of(ben, chat))
        assert len(server.messages(f"vault/{chat}")) == 20, "the items must remain"


def messages_of(client: Client, chat: str) -> list[dict[str, Any]]:
    """Return the messages of a chat, oldest first, or none while the server returns errors."""
    response = client.call("GET", f"/v1/chats/{chat}/messages", params={"limit": 50})
    return [] if response.is_error else list(response.json()["messages"])


def texts_of(client: Client, chat: str) -> list[str]:
    return [message["body"] for message in messages_of(client, chat)]
