"""Finished uploads: one of an owner is checked at a time, so that many do not crowd out others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from chatserver.config import Attachments as Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership import Reader
from chatserver.errors import RateLimited
from chatserver.features.attachments.cold import UploadForm
from chatserver.features.attachments.model import Bounds, File
from chatserver.features.attachments.service.uploads import CHECKS_WAITING_MAX, Uploads
from chatserver.protocol import frames
from chatserver.service.history.service import Page

CHAT = ChatId("g-1")
MALLORY = UserId("mallory")
BOB = UserId("bob")


def _file(name: str, owner: UserId) -> File:
    return File(name, owner, CHAT, "a.txt", "text/plain", 5, "0" * 64, created=1, due=2)


class _World:
    """The stores of uploads. A check by `accept` lasts until the test lets it go."""

    def __init__(self, *files: File) -> None:
        self.rows = {file.id: file for file in files}
        self.checking: list[str] = []  # in the order in which they began
        self.gate = asyncio.Event()

    async def create_file(self, file: File, bounds: Bounds) -> File:
        raise NotImplementedError

    async def find_file(self, file: str) -> File | None:
        return self.rows.get(file)

    async def change_file(self, file: str, change: Callable[[File], File]) -> File | None:
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
        await self.gate.wait()

    async def delete_upload(self, file: File) -> None:
        pass

    async def sign_link(self, file: File, lifetime_s: int) -> str:
        raise NotImplementedError

    async def sign_thumb_link(self, file: File, lifetime_s: int) -> str:
        raise NotImplementedError

    async def add(self, file: str) -> None:
        pass

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        return Reader(Seq(1), Seq(0))

    async def get_page(self, reader: UserId, frame: frames.History) -> Page:
        raise NotImplementedError

    def uploads(self) -> Uploads:
        return Uploads(
            rows=self,
            objects=self,
            files=self,
            jobs=self,
            readers=self,
            pages=self,
            settings=Settings(),
            clock=SystemClock(),
        )


async def _until_idle() -> None:
    """Let every task run as far as it can without the gate."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_upload_of_an_owner_is_checked_at_a_time() -> None:
    """Another owner's is checked beside it, however many of the first owner wait."""
    many = [_file(f"f-{n}", MALLORY) for n in range(10)]
    world = _World(*many, _file("f-bob", BOB))
    uploads = world.uploads()

    async with asyncio.TaskGroup() as group:
        storm = [group.create_task(uploads.finish(MALLORY, file.id)) for file in many]
        await _until_idle()
        bystander = group.create_task(uploads.finish(BOB, "f-bob"))
        await _until_idle()
        assert world.checking == ["f-0", "f-bob"]
        world.gate.set()

    assert bystander.result().phase == "ready"
    assert [task.result().phase for task in storm] == ["ready"] * len(many)


async def test_upload_beyond_the_waiting_ones_is_rate_limited_and_can_be_finished_later() -> None:
    """The refusal changes nothing: the same call works when the line is shorter."""
    many = [_file(f"f-{n}", MALLORY) for n in range(CHECKS_WAITING_MAX + 2)]
    world = _World(*many)
    uploads = world.uploads()

    async with asyncio.TaskGroup() as group:
        for file in many[:-1]:
            group.create_task(uploads.finish(MALLORY, file.id))
        await _until_idle()
        with pytest.raises(RateLimited, match="uploads"):
            await uploads.finish(MALLORY, many[-1].id)
        world.gate.set()

    assert (await uploads.finish(MALLORY, many[-1].id)).phase == "ready"


async def test_cancelled_check_lets_the_next_upload_be_checked() -> None:
    """A slot is given back when its caller has gone."""
    files = [_file("f-1", MALLORY), _file("f-2", MALLORY)]
    world = _World(*files)
    uploads = world.uploads()
    first = asyncio.create_task(uploads.finish(MALLORY, "f-1"))
    await _until_idle()

    second = asyncio.create_task(uploads.finish(MALLORY, "f-2"))
    await _until_idle()
    first.cancel()
    await _until_idle()

    assert world.checking == ["f-1", "f-2"]
    world.gate.set()
    assert (await second).phase == "ready"
