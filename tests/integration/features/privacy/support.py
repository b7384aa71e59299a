"""Helpers of the tests of exports and erasures: a stack with a bucket, and users over HTTP."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold
from chatserver.dev.servers import Server, ministack_launch
from tests.integration.features.attachments.support import (
    cold_settings,
    cold_variables,
    iter_objects,
)
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import PATIENT, Stack, open_stack

TIMEOUT_S = 30
QUICK = {
    "chatserver.features.privacy.worker.erasure.SETTLE_S": "0.3",
    "chatserver.features.privacy.worker.job_worker.LEASE_S": "1",
    "chatserver.features.privacy.worker.job_worker.POLL_S": "0.1",
    "workers.delivery_repair.REPAIR_AFTER_MS": "100",
    "workers.delivery_repair.INTERVAL_MS": "100",
    "workers.persist.worker.IDLE_MS": "50",
    "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
    "chatserver.auth.passwords.ARGON2_PASSES": "1",
    "CHAT_AUTH_COOKIE_SECURE": "false",
    # No server listens on this port, so events stay in Redis and become dead letters.
    "CHAT_WEBHOOKS_SECRET": "s" * 32,
    "CHAT_WEBHOOKS_EVENTS_URL": "http://127.0.0.1:9/events",
    "CHAT_WEBHOOKS_BEFORE_SEND_URL": "http://127.0.0.1:9/ask",
    "chatserver.features.webhooks.worker.ATTEMPTS_MAX": "2",
    "chatserver.features.webhooks.worker.BACKOFF_S": "0.1",
    "chatserver.features.webhooks.worker.BACKOFF_S_MAX": "0.2",
    "CHAT_WEBHOOKS_TIMEOUT_S": "0.3",
    "CHAT_OUTBOUND_ALLOW_PRIVATE": '["127.0.0.0/8"]',
}
PASSWORD = "a password of some length"


class Vault(NamedTuple):
    """A stack, its API process and its bucket."""

    stack: Stack
    api: Server
    cold: Cold

    def start_worker(self, *names: str, failpoint: str = "") -> Server:
        """Start a worker; if `failpoint` is given, it kills itself there."""
        more = {"CHAT_FAILPOINT": f"{failpoint}:kill"} if failpoint else {}
        return self.stack.start_worker(*names, **more)

    def iter_objects(self) -> Iterator[tuple[str, bytes]]:
        return iter_objects(self.cold)


@contextlib.asynccontextmanager
async def open_vault(folder: Path, **more: str) -> AsyncIterator[Vault]:
    """Start a stack with a bucket; tests start the workers for exports and erasures.

    `more` are environment variables of all processes.
    """
    s3 = Server(ministack_launch(folder / "s3", free_port(), service="s3"))
    with contextlib.ExitStack() as servers:
        servers.callback(s3.kill)
        s3.start()
        cold = cold_settings(s3.endpoint)
        env = {
            **cold_variables(cold),
            **PATIENT,
            **QUICK,
            **more,
        }
        workers = (("persist", "repair", "rpc", "media", "webhooks"),)
        stack = servers.enter_context(open_stack(folder, workers=workers, fsync="no", env=env))
        async with open_s3(cold) as store:
            await apply_bucket(store, cold)
        yield Vault(stack, stack.start_api(), cold)


class Person:
    def __init__(self, client: httpx.AsyncClient, user: str) -> None:
        self.client = client
        self.user = user
        self.token = ""

    async def register(self, **more: Any) -> None:
        body = {"user": self.user, "password": PASSWORD, **more}
        granted = await self.request("POST", "/v1/auth/register", 201, body)
        self.token = granted["token"]

    async def request(self, method: str, path: str, status: int = 200, body: Any = None) -> Any:
        """Make a request and check the status; return the response body."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = await self.client.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def send(self, chat: str, body: str, **more: Any) -> int:
        sent = await self.request("POST", f"/v1/chats/{chat}/messages", 201, {"body": body, **more})
        seq: int = sent["seq"]
        return seq

    async def upload(self, chat: str, content: bytes, name: str) -> str:
        digest = hashlib.sha256(content).hexdigest()
        fields = {"name": name, "size": len(content), "type": "text/plain", "sha256": digest}
        begun = await self.request("POST", f"/v1/chats/{chat}/attachments", 201, fields)
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as s3:
            answer = await s3.post(begun["url"], data=begun["fields"], files={"file": content})
            assert answer.status_code == 204, answer.text
        await self.request("POST", f"/v1/attachments/{begun['id']}/complete")
        file: str = begun["id"]
        return file

    async def open_direct(self, other: str) -> str:
        chat: str = (await self.request("PUT", f"/v1/direct-chats/{other}"))["chat"]
        return chat

    async def wait_for_export(self) -> dict[str, Any]:
        async def is_finished() -> dict[str, Any] | None:
            found: dict[str, Any] = await self.request("GET", "/v1/me/export")
            return found if found["state"] in ("ready", "failed") else None

        return await eventually(is_finished, 60, "the export is finished")  # type: ignore[return-value]  # not None


async def wait_for_erasure(client: httpx.AsyncClient, receipt: str) -> dict[str, Any]:
    """Wait until the erasure is done and return its receipt."""

    async def is_done() -> dict[str, Any] | None:
        found: dict[str, Any] = (await client.get(f"/v1/erasures/{receipt}")).json()
        return found if found["state"] == "done" else None

    return await eventually(is_done, deadline_s=60, what="the erasure is done")  # type: ignore[return-value]  # not None
