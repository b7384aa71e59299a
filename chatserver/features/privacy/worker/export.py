"""Export worker: builds ZIPs of users' data and uploads them to S3.

The worker waits until the warm tier has all committed messages, then builds and uploads the ZIP.
Crash-safe: after a crash, a worker starts over and replaces any ZIP that was already uploaded. A
ZIP is deleted when it expires or its user is erased.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import structlog

from chatserver.cold.client import ObjectMissing
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.model import File
from chatserver.features.attachments.worker.sweep import SWEEP_INTERVAL_S
from chatserver.features.chat_preferences.container import PreferencesContainer
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.frames import describe_session
from chatserver.features.companions.worker.personal_data import iter_responses, iter_sessions
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.settings import Privacy
from chatserver.features.privacy.warm.user_data import FILE_PREFIX, REPORTED_PREFIX
from chatserver.features.privacy.worker.job_worker import (
    ClaimedJob,
    JobLost,
    JobWorker,
    wait_until_persisted,
)
from chatserver.features.privacy.worker.limited_zip_file import LimitedZipFile, open_zip
from chatserver.features.privacy.worker.social_data import SocialData
from chatserver.features.push.container import PushContainer
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message
from chatserver.task_groups import open_task_group
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

EXPORT_BYTES_MAX = 5_368_709_120

EXPORT_ATTEMPTS_MAX = 5

DAY_S = 86_400
CHATS_PAGE = 100
BLOCKS_PAGE = 1_000
README = """\
This ZIP file contains a copy of your data on this server.

profile.json     your account: name, description of yourself, blocked users, reports you made,
                 pinned chats and push notification settings
devices.jsonl    devices on which you are logged in with a password
chats.jsonl      your chats, your role in each, and how far you have read them
preferences.jsonl
                 your own settings for each chat, with drafts
messages.jsonl   messages that you sent, in all chats, in their current version; deleted messages
                 have no text, and expired messages are omitted
sessions.jsonl   your sessions with AI companions, each with its chat and, if there is one, the
                 summary of messages `first` to `upto` that the companion uses as its memory
answers.jsonl    responses of companions in these sessions
memories.jsonl   what companions remember about you across sessions
following.jsonl  users whom you follow
followers.jsonl  users who follow you
posts.jsonl      your posts
likes.jsonl      posts that you like, and their authors
favorites.jsonl  posts and messages that you saved, without their text
attachments/     your files, named by their ids; attachments.jsonl describes each file

Times are in milliseconds since 1970 (UTC); `ts` is in microseconds. Files that end in .jsonl have
one JSON object per line. Messages and posts of other users are not included.
"""


class ExportWorker:
    """Builds exports, and removes expired exports."""

    def __init__(self, container: StorageContainer) -> None:
        self._container = container
        self._privacy = container.get(PrivacyContainer)
        self._settings = container.settings.get(Privacy)

    async def build(self, claimed: ClaimedJob) -> None:
        """Build and upload the export of a job.

        Raises:
            TooLarge: the ZIP would exceed the size limit.
            NotFound: the user no longer exists.
            Unavailable: a data store is unavailable; retry.
            JobLost: another worker has claimed the job, or the user has been erased.
        """
        job = claimed.job
        await wait_until_persisted(self._container)
        async with open_zip(EXPORT_BYTES_MAX) as archive:
            await self._write(archive, claimed)
            failpoint("export.before_upload")
            content, size = await archive.finish()
            await claimed.update(progress=90)
            await self._privacy.exports.put(job.id, content, size)
        failpoint("export.after_upload")
        expires_at = int(self._container.clock.time()) + self._settings.export_days * DAY_S
        try:
            await claimed.finish(
                state="ready", progress=100, size=size, expires_at=expires_at, why=""
            )
        except JobLost:
            if await self._privacy.jobs.find(job.id) is None:
                await self._privacy.exports.remove(job.id)  # the user has been erased
            raise

    async def _write(self, archive: LimitedZipFile, claimed: ClaimedJob) -> None:
        user = UserId(claimed.job.user)
        await archive.put_text("README.txt", README.encode())
        await archive.put_text("profile.json", msgspec.json.encode(await self._get_profile(user)))
        await archive.put_lines("devices.jsonl", self._iter_devices(user))
        await archive.put_lines("chats.jsonl", self._iter_chats(user))
        await archive.put_lines("preferences.jsonl", self._iter_preferences(user))
        await claimed.update(progress=10)
        await archive.put_lines("messages.jsonl", self._iter_messages(user))
        await archive.put_lines("sessions.jsonl", self._iter_sessions(user))
        await archive.put_lines("answers.jsonl", self._iter_answers(user))
        await archive.put_lines("memories.jsonl", self._iter_memories(user))
        await self._write_social(archive, user)
        failpoint("export.after_messages")
        await claimed.update(progress=50)
        files = await self._list_files(user)
        await archive.put_lines(
            "attachments.jsonl",
            _iter_one_page([_describe_file(stored_file) for stored_file in files]),
        )
        for number, file in enumerate(files, 1):
            await self._put_file(archive, file)
            await claimed.update(progress=50 + 40 * number // len(files))

    async def _write_social(self, archive: LimitedZipFile, user: UserId) -> None:
        data = SocialData(self._container, user)
        await archive.put_lines("following.jsonl", data.iter_edges(is_follower=False))
        await archive.put_lines("followers.jsonl", data.iter_edges(is_follower=True))
        await archive.put_lines("posts.jsonl", data.iter_posts())
        await archive.put_lines("likes.jsonl", data.iter_likes())
        await archive.put_lines("favorites.jsonl", data.iter_favorites())

    async def _get_profile(self, user: UserId) -> dict[str, Any]:
        record = await self._privacy.accounts.find_user(user)
        if record is None or record.erased_ms is not None:
            raise NotFound("user: does not exist")
        blocks = await self._container.moderation_rows.list_blocks(user, None, BLOCKS_PAGE)
        devices = await self._container.get(PushContainer).subscriptions.list_for_user(
            user, self._container.clock.time()
        )
        reports = await self._privacy.rows.list_names(user, REPORTED_PREFIX)
        pinned = await self._container.get(PreferencesContainer).rows.get_pinned(user)
        credential = await self._privacy.accounts.find_credential(user)
        return {
            "user": user,
            "name": record.name,
            "about": record.about,
            "discoverable": bool(record.words),
            "created": record.created_ms,
            "password_changed": None if credential is None else credential.changed_ms,
            "blocks": [{"user": block.user, "since": block.since} for block in blocks],
            "reports": [await self._get_report(user, report) for report in reports],
            "push_subscriptions": [
                {"kind": device.kind, "target": device.target, "created": device.created_ms}
                for device in devices
            ],
            "pinned_chats": pinned.chats,
            "social": await SocialData(self._container, user).get_profile(),
        }

    async def _get_report(self, user: UserId, reported: str) -> dict[str, Any]:
        chat, _, seq = reported.partition("#")
        reason = await self._privacy.rows.find_reason(reported, user)
        return {"chat": chat, "seq": int(seq), "reason": reason}

    async def _iter_devices(self, user: UserId) -> AsyncIterator[list[Any]]:
        yield [
            {
                "device": login.login,
                "name": login.name,
                "created": login.created_ms,
                "seen": login.seen_ms,
                "ended": login.ended_ms,
            }
            for login in await self._privacy.accounts.list_logins(user)
        ]

    async def _iter_chats(self, user: UserId) -> AsyncIterator[list[Any]]:
        start = None
        while True:
            page = await self._container.directory.list_memberships(
                user, limit=CHATS_PAGE, start=start
            )
            yield [
                {
                    "chat": chat.chat,
                    "kind": chat.kind,
                    "name": chat.name,
                    "role": member.role,
                    "joined": member.joined,
                    "read": member.read,
                    "received": member.received,
                    "deleted_for_me": [seq for seq in member.hidden if seq > 0],
                    "earlier_periods": [list(period) for period in member.periods],
                }
                for chat, member in page.items
            ]
            start = page.next
            if start is None:
                return

    async def _iter_preferences(self, user: UserId) -> AsyncIterator[list[Any]]:
        rows, after = self._container.get(PreferencesContainer).rows, None
        while True:
            page, after = await rows.list(user, after, CHATS_PAGE)
            yield [msgspec.to_builtins(preference) for preference in page]
            if after is None:
                return

    async def _iter_messages(self, user: UserId) -> AsyncIterator[list[Any]]:
        now_s = self._container.clock.time()

        def is_exported(entry: Message) -> bool:
            return is_message(entry) and (entry.expires_at is None or entry.expires_at > now_s)

        async for page in self._privacy.user_messages.iter_entries(user):
            yield [entry for entry in page if is_exported(entry)]

    async def _iter_sessions(self, user: UserId) -> AsyncIterator[list[Any]]:
        async for session in iter_sessions(self._container, user):
            line = msgspec.to_builtins(describe_session(session))
            memory = await self._container.get(CompanionContainer).summaries.find(session.chat)
            if memory is not None:
                memory_fields = {"first": memory.first, "upto": memory.upto, "summary": memory.text}
                line["memory"] = memory_fields
            yield [line]

    async def _iter_memories(self, user: UserId) -> AsyncIterator[list[Any]]:
        rows = self._container.get(CompanionContainer).memory_rows
        exported: set[str] = set()
        async for session in iter_sessions(self._container, user):
            if session.companion in exported:
                continue
            exported.add(session.companion)
            memory = await rows.get(user, session.companion)
            fields = ("kind", "text", "created", "updated", "expires")
            yield [
                {"companion": session.companion, **{name: getattr(entry, name) for name in fields}}
                for entry in memory.entries
            ]

    async def _iter_answers(self, user: UserId) -> AsyncIterator[list[Any]]:
        async for session in iter_sessions(self._container, user):
            async for page in iter_responses(self._container, session):
                yield [entry for entry in page if is_message(entry)]

    async def _list_files(self, user: UserId) -> list[File]:
        names = await self._privacy.rows.list_names(user, FILE_PREFIX)
        files = [
            await self._container.get(AttachmentContainer).rows.find_file(name) for name in names
        ]
        return [file for file in files if file is not None and file.phase == "ready"]

    async def _put_file(self, archive: LimitedZipFile, file: File) -> None:
        objects = self._container.get(AttachmentContainer).objects
        try:
            async with contextlib.aclosing(objects.iter_pieces(file)) as pieces:
                await archive.put_pieces(_build_path(file), pieces)
        except ObjectMissing:
            log.warning("export.file_missing", file=file.id)

    async def remove_expired(self) -> int:
        """Remove expired ZIPs; return how many there were. Idempotent."""
        jobs = self._privacy.jobs
        over = await jobs.list_expiring_before(int(self._container.clock.time()))
        for id_, expires_at in over:
            await self._privacy.exports.remove(id_)
            await jobs.delete(id_, expires_at)
        return len(over)


def _build_path(file: File) -> str:
    # Users choose the file names, so keep only characters that are not special in a path.
    name = re.sub(r"[^\w.() -]", "_", file.name).strip(". ")[-100:]
    return f"attachments/{file.id}-{name}" if name else f"attachments/{file.id}"


def _describe_file(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "file": _build_path(file),
        "name": file.name,
        "type": file.type,
        "size": file.size,
        "sha256": file.sha256,
        "chat": file.chat,
        "created": file.created * 1000,
        "messages": sorted(file.seqs),
    }


async def _iter_one_page(lines: list[Any]) -> AsyncIterator[list[Any]]:
    yield lines


def make_export_worker(container: StorageContainer, owner: str) -> JobWorker:
    return JobWorker(
        container=container,
        owner=owner,
        kind="export",
        work=ExportWorker(container).build,
        tries_max=EXPORT_ATTEMPTS_MAX,
    )


async def run_exports(container: StorageContainer, owner: str) -> None:
    """Build exports and remove expired exports, until cancelled.

    Raises:
        Unavailable: a data store is unavailable; restart the worker.
    """
    worker = ExportWorker(container)

    async def remove_expired() -> None:
        while True:
            await worker.remove_expired()
            await asyncio.sleep(SWEEP_INTERVAL_S)

    async with open_task_group() as group:
        group.create_task(make_export_worker(container, owner).run(), name="exports")
        group.create_task(remove_expired(), name="old-exports")
