"""Finished uploads: one upload per owner is checked at a time, so no owner blocks the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.errors import RateLimited
from chatserver.features.attachments.cold import UploadForm
from chatserver.features.attachments.model import File, UploadBounds
from chatserver.features.attachments.service.uploads import CHECKS_WAITING_MAX, Uploads
from chatserver.features.attachments.settings import Attachments as Settings

CHAT = ChatId("g-1")
MALLORY = UserId("mallory")
BOB = UserId("bob")


def _file(name: str, owner: UserId) -> File:
    return File(name, owner, CHAT, "a.txt", "text/plain", 5, "0" * 64, created=1, due=2)


class _FakeStores:
    """The stores of uploads. A check by `accept` lasts until the test releases it."""

    def __init__(self, *files: File) -> None:
        self.rows = {file.id: file for file in files}
        self.checking: list[str] = []  # in the order of their start
        self.release = asyncio.Event()

    async def create_file(self, file: File, bounds: UploadBounds) -> File:
        raise NotImplementedError

    async def find_file(self, file: str) -> File | None:
        return self.rows.get(file)

    async def update_file(self, file: str, change: Callable[[File], File]) -> File | None:
        self.rows[file] = change(self.rows[file])
        return self.rows[file]

    async def find(self, files: Sequence[str]) -> list[File | None]:
        return [None for _ in files]

    async def put(self, file: File, now_s: float, *, is_update: bool) -> None:
        pass

    async def sign_upload(self, file: File, lifetime_s: int) -> UploadForm:
        raise NotImplementedError

    async def accept(self, file: File) -> None:
        self.checking.append(file.id)
        await self.release.wait()

    async def delete_upload(self, file: File) -> None:
        pass

    async def add(self, file: str) -> None:
        pass

    async def consume(self, user: UserId, count: int, networks: tuple[str, ...]) -> int:
        return 0

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        return Reader(Seq(1), Seq(0))

    def uploads(self) -> Uploads:
        return Uploads(
            rows=self,
            objects=self,
            files=self,
            jobs=self,
            readers=self,
            settings=Settings(),
            clock=SystemClock(),
            daily_bytes=self,
        )


async def _run_until_idle() -> None:
    """Let every task run until it waits for `release`."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_upload_of_an_owner_is_checked_at_a_time() -> None:
    """Another owner's upload does not wait for them."""
    many = [_file(f"f-{n}", MALLORY) for n in range(10)]
    stores = _FakeStores(*many, _file("f-bob", BOB))
    uploads = stores.uploads()

    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(uploads.finish(MALLORY, file.id)) for file in many]
        await _run_until_idle()
        other = group.create_task(uploads.finish(BOB, "f-bob"))
        await _run_until_idle()
        assert stores.checking == ["f-0", "f-bob"]
        stores.release.set()

    assert other.result().phase == "ready"
    assert [task.result().phase for task in flood] == ["ready"] * len(many)


async def test_upload_beyond_the_waiting_limit_is_refused_and_can_be_retried() -> None:
    """The error changes nothing: the same call succeeds when fewer uploads wait."""
    many = [_file(f"f-{n}", MALLORY) for n in range(CHECKS_WAITING_MAX + 2)]
    stores = _FakeStores(*many)
    uploads = stores.uploads()

    async with asyncio.TaskGroup() as group:
        for file in many[:-1]:
            group.create_task(uploads.finish(MALLORY, file.id))
        await _run_until_idle()
        with pytest.raises(RateLimited, match="uploads"):
            await uploads.finish(MALLORY, many[-1].id)
        stores.release.set()

    assert (await uploads.finish(MALLORY, many[-1].id)).phase == "ready"


async def test_canceled_check_releases_its_slot() -> None:
    """The next upload of the owner is checked."""
    files = [_file("f-1", MALLORY), _file("f-2", MALLORY)]
    stores = _FakeStores(*files)
    uploads = stores.uploads()
    first = asyncio.create_task(uploads.finish(MALLORY, "f-1"))
    await _run_until_idle()

    second = asyncio.create_task(uploads.finish(MALLORY, "f-2"))
    await _run_until_idle()
    first.cancel()
    await _run_until_idle()

    assert stores.checking == ["f-1", "f-2"]
    stores.release.set()
    assert (await second).phase == "ready"
