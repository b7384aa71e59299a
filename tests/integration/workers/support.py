"""Helpers of the worker tests: worker components on real servers, chats, and a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from chatserver import config
from chatserver.config import Settings, Warm
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Mid, Ref, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.domain.messages import (
    Audience,
    ChatNotLoaded,
    CommitOutcome,
    CommitRefused,
    PendingDraft,
    SenderNotMember,
    compute_digest,
)
from chatserver.hot.bus.gateway_stream import AnyRecord, CallResult, GatewayStream
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.user_gateways import UserGateways
from chatserver.protocol import codec, frames
from chatserver.service.membership import group_membership
from chatserver.warm.messages.message_indexes import MessageIndexes
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually
from workers.persist.worker import PersistWorker

ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
GATEWAY = GatewayId("gw1")
_numbers = itertools.count(1)
# Timeouts for tests without server faults: long enough for a slow machine.
PATIENT_VARIABLES = {
    "CHAT_REDIS_CALL_TIMEOUT_S": "20",
    "CHAT_WARM_CALL_TIMEOUT_S": "20",
}


def patient_redis(redis_url: str, **changes: Any) -> config.Redis:
    """Return Redis settings for tests without faults, with timeouts for a slow machine."""
    return config.Redis(**{"url": redis_url, "call_timeout_s": 20.0, **changes})


def settings_of(redis_url: str, warm: Warm, **sections: Any) -> Settings:
    """Return the settings of a worker."""
    redis = patient_redis(redis_url, **sections.pop("redis", {}))
    # Most tests do not cover invitations, so all users may add each other.
    sections.setdefault("chats", config.Chats(invitations="never"))
    return Settings(redis=redis, warm=warm, **sections)


@contextlib.asynccontextmanager
async def open_container(
    redis_url: str, warm: Warm, **sections: Any
) -> AsyncIterator[StorageContainer]:
    """Open the components of one worker process."""
    async with open_storage_container(
        role="worker", settings=settings_of(redis_url, warm, **sections), clock=SystemClock()
    ) as container:
        yield container


def with_attributes(container: StorageContainer, **attributes: object) -> StorageContainer:
    """Return a copy of a container with other attributes, which shares its connections."""
    changed = copy.copy(container)
    vars(changed).update(attributes, _created={})
    return changed


class Crashed(Exception):
    """Raised at a failpoint in place of a process crash."""


def make_request(kind: type[Any], chat: str, ref: str = "", **fields: Any) -> Any:
    """Create a request of a client."""
    return kind(id=1, chat=ChatId(chat), ref=ref or f"q{next(_numbers)}", **fields)


async def change(
    container: StorageContainer, actor: UserId, kind: type[Any], chat: str, /, **fields: Any
) -> frames.ChatInfo:
    """Change a group as a user."""
    return await container.membership.change(actor, make_request(kind, chat, **fields))


async def crash(
    container: StorageContainer,
    failpoint: str,
    actor: UserId,
    kind: type[Any],
    chat: str,
    /,
    **fields: Any,
) -> None:
    """Change a group as a user whose process crashes at a failpoint."""

    def end_process(name: str) -> None:
        if name == f"membership.{failpoint}":
            raise Crashed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crashed):
        patch.setattr(group_membership, "failpoint", end_process)
        await change(container, actor, kind, chat, **fields)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it ends."""
    while not task.done():
        task.cancel()
        # Cancel again only if a cancellation was lost, because it would interrupt a graceful stop.
        await asyncio.wait([task], timeout=3)


@contextlib.asynccontextmanager
async def running(work: Any, name: str = "worker") -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker during the block; an error of the worker fails the test."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
        if task.done():
            task.result()
    finally:
        await end(task)


class Outcomes:
    """Counts the outcomes of drafts and records failures."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[Any] = []

    def record(self, draft: PendingDraft, outcome: CommitOutcome) -> None:
        """Count an outcome."""
        self.count += 1
        if isinstance(outcome, ChatNotLoaded | SenderNotMember | CommitRefused):
            self.failures.append((draft.ref, outcome))


class Gateway:
    """Commits messages like a gateway, and reads its gateway stream."""

    def __init__(self, hot: HotClient, name: GatewayId = GATEWAY) -> None:
        self.hot = hot
        self.records: list[AnyRecord] = []
        self._gateway_stream = GatewayStream(hot, name)
        self._numbers = itertools.count(1)
        self._outcomes = Outcomes()
        self._commits = PartitionedCommit(hot, name, self._outcomes.record)
        self._sent = 0
        self._presence = UserGateways(hot, name, 600.0)  # without heartbeats
        self.calls = RpcClient(hot, name, 20.0)

    async def listen(self) -> None:
        """Read the gateway stream until canceled."""
        async for records in self._gateway_stream.iter_records():
            self.records += records or []
            for record in records or ():
                if isinstance(record, CallResult):
                    self.calls.handle_result(record)

    async def announce(self, *users: UserId) -> list[InboxState]:
        """Record that users are online at this gateway; return the states of their inboxes."""
        return await self._presence.set_online(users)

    def received(self, kind: type[Any]) -> list[Any]:
        """Return the received records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    async def send(
        self,
        audience: Audience,
        *bodies: str,
        sender: UserId = ALICE,
        tail: Callable[[bytes], bytes] = lambda tail: tail,
        is_stored_wanted: bool = False,
    ) -> None:
        """Commit messages and wait for their outcomes; `tail` may corrupt the stored bytes."""
        for body in bodies:
            number = next(self._numbers)
            ref, mid = Ref(f"r{number}"), Mid(f"M{number}")
            made = codec.encode_message_tail(audience.chat, mid, sender, ref, "text", body, None)
            digest = compute_digest("text", body, None)
            self._commits.submit(
                PendingDraft(
                    chat=audience.chat, sender=sender, ref=ref, mid=mid, digest=digest,
                    tail=tail(made), request_id=1, is_stored_wanted=is_stored_wanted,
                    listener=cast(Any, None),
                ),
                audience,
            )  # fmt: skip
            self._sent += 1
        await eventually(lambda: self._outcomes.count == self._sent)
        assert not self._outcomes.failures


async def be_on_one_day() -> None:
    """Wait until after midnight if it is near, for tests of daily counters."""
    await eventually(lambda: time.time() % 86_400 < 86_400 - 60, 90, "midnight is far")


async def make_users(container: StorageContainer, *users: UserId) -> None:
    """Create users."""
    for user in users:
        await container.directory.put_user_if_absent(user, None, 1.0)


async def make_direct(container: StorageContainer, a: UserId = ALICE, b: UserId = BOB) -> Audience:
    """Create a direct chat in both tiers; return its audience."""
    await make_users(container, a, b)
    info = await container.chat_creator.open_direct(a, b)
    return await container.audiences.get(ChatId(info.chat))


async def make_group(container: StorageContainer, *users: UserId, ref: str = "g") -> Audience:
    """Create a group in both tiers; return its audience."""
    await make_users(container, *users)
    info = await container.chat_creator.create_chat(users[0], Ref(ref), users[1:], "Team")
    return await container.audiences.get(ChatId(info.chat))


def queries_of(container: StorageContainer) -> MessageIndexes:
    """Return the queries on the messages that the workers write."""
    return MessageIndexes(container.messages._client)


async def stored_of(container: StorageContainer, chat: ChatId) -> list[frames.Message]:
    """Return all messages of a chat in the warm tier, oldest first."""
    found: list[frames.Message] = []
    start = None
    while True:
        page = await queries_of(container).list_chat(
            chat, limit=200, start=start, newest_first=False
        )
        found += page.items
        start = page.next
        if start is None:
            return found


async def count_backlog(container: StorageContainer) -> int:
    """Return the number of messages and marks in the backlog that are not persisted."""
    backlog = Backlog(container.hot, 0)
    entries = await backlog.list_after(await backlog.get_checkpoint(), 1_000_000)
    return sum(entry.size for entry in entries)


async def is_drained(container: StorageContainer) -> bool:
    """Return whether everything is persisted."""
    left: int = await container.hot.call("XLEN", container.hot.keys.backlog(0))
    return left == 0


async def empty_redis(container: StorageContainer) -> None:
    """Empty Redis, and wait until the process detects the new epoch."""
    before = container.hot.get_epoch(0)
    await container.hot.call("FLUSHDB")
    await eventually(lambda: container.hot.get_epoch(0) not in {"", before})


async def is_lease_holder(container: StorageContainer, owner: bytes) -> bool:
    """Return whether `owner` holds the lease of the persist worker."""
    held: bytes = await container.hot.call("HGET", container.hot.keys.lease(0, "persist"), "owner")
    return held == owner


def texts(count: int, stem: str = "text") -> list[str]:
    """Return `count` numbered bodies."""
    return [f"{stem} {n}" for n in range(1, count + 1)]


def persister_of(container: StorageContainer, owner: str = "w1") -> PersistWorker:
    """Return the persist worker of the only partition."""
    return PersistWorker(container, 0, owner)


def bodies(messages: Sequence[frames.Message]) -> list[str]:
    """Return the bodies of messages."""
    return [message.body for message in messages]


def variables_of(container: StorageContainer) -> dict[str, str]:
    """Return the environment variables of a process on the same servers."""
    warm, cold = container.settings.warm, container.settings.cold
    bucket = {
        "CHAT_COLD_ENDPOINT": str(cold.endpoint),
        "CHAT_COLD_BUCKET": cold.bucket,
        "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
        "CHAT_COLD_SECRET_KEY": SECRET_KEY,
    }
    return {
        **PATIENT_VARIABLES,
        **(bucket if cold.endpoint else {}),
        "CHAT_REDIS_URL": container.settings.redis.url,
        "CHAT_WARM_ENDPOINT": str(warm.endpoint),
        "CHAT_WARM_TABLE_PREFIX": warm.table_prefix,
        "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
        "CHAT_WARM_SECRET_KEY": SECRET_KEY,
        "CHAT_CHATS_INVITATIONS": container.settings.chats.invitations,
    }


@contextlib.asynccontextmanager
async def worker_process(
    container: StorageContainer, worker: str, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a worker process on the same servers; kill it at the end if it still runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "worker", worker,
        env=kept | variables_of(container) | env,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)


async def persist(container: StorageContainer) -> None:
    """Run a persist worker until the backlog is empty."""
    async with running(persister_of(container).run()):
        await eventually(lambda: is_drained(container))
