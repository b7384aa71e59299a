"""Erasure worker: deletes a user's data in steps, with a receipt.

::

    sessions ─► chats ─► messages ─► companions ─► copies ─► files ─► exports ─► reports ─► social
                                                            check ◄─ keys ◄─ rows ◄─ traces ◄─┘

`copies` are analytics files and search entries. `traces` are entries in Redis streams and queues.
`rows` are items in the user's partition of `directory`. `keys` are the user's Redis keys. `check`
repeats the deletion until no more data is found.

Each completed step adds lines to the receipt. Crash-safe: every step is idempotent, and after a
crash a worker continues with the first step that is not in the receipt. If a step was repeated, its
lines count only the items that the last attempt found. Before the first step, the user's item is
already a tombstone. After the second step, no chat accepts messages from the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.container.storage_feature_ports import ERASE_INDEXED, REWRITE_EXPORTED
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.worker.personal_data import iter_responses, iter_sessions
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.model import Line, ReceiptLine
from chatserver.features.privacy.warm.jobs import EXPORT_PREFIX
from chatserver.features.privacy.warm.user_data import FILE_PREFIX, REPORTED_PREFIX
from chatserver.features.privacy.worker.job_worker import (
    LEASE_S,
    ClaimedJob,
    JobWorker,
    wait_until_persisted,
)
from chatserver.features.privacy.worker.social_data import SocialData
from chatserver.features.push.container import PushContainer
from chatserver.features.webhooks.settings import Webhooks
from chatserver.protocol import frames
from chatserver.service.messaging.message_erasure import has_text
from chatserver.telemetry.failpoints import failpoint
from workers.archive.container import ArchiveContainer

log = structlog.get_logger()

RECEIPT_DAYS = 365  # lifetime of a receipt

SETTLE_S = 10.0  # operations that are in progress finish within this time

CHATS_PAGE = 100
PASSES_MAX = 8
REMOVE_TRIES_MAX = 5
REWRITE_TRIES_MAX = 20
DAY_S = 86_400
LEAVE_REF = "erase-leave"
REDIS, DIRECTORY, MESSAGES, BUCKET = "Redis", "DynamoDB directory", "DynamoDB messages", "S3"
INDEX = "search index"
SESSIONS = "DynamoDB chat_session"
TIERS = f"{REDIS}, {MESSAGES}"


class Erasure:
    """Erases one user."""

    def __init__(self, container: StorageContainer, claimed: ClaimedJob) -> None:
        self._container = container
        self._privacy = container.get(PrivacyContainer)
        self._attachments = container.get(AttachmentContainer)
        self._companions = container.get(CompanionContainer)
        self._rewrite_exported = container.get_port(REWRITE_EXPORTED)
        self._erase_indexed = container.get_port(ERASE_INDEXED)
        self._claimed = claimed
        self._user = UserId(claimed.job.user)
        self._steps: dict[str, Callable[[], Awaitable[list[Line]]]] = {
            "sessions": self._end_sessions,
            "chats": self._leave_chats,
            "messages": self._erase_messages,
            "companions": self._erase_companions,
            "copies": self._erase_copies,
            "files": self._remove_files,
            "exports": self._remove_exports,
            "reports": self._remove_report_reasons,
            "social": SocialData(container, self._user).erase,
            "traces": self._remove_traces,
            "rows": self._remove_rows,
            "keys": self._remove_keys,
            "check": self._check_erased,
        }

    async def run(self) -> None:
        """Run the steps of the erasure that are not in its receipt yet.

        Raises:
            Unavailable: a data store is unavailable, or new data is still being written; retry
                later.
            JobLost: another worker has claimed the job.
        """
        lines = list(self._claimed.job.steps)
        done = {line.step for line in lines}
        for number, (name, step) in enumerate(self._steps.items(), 1):
            if name in done:
                continue
            failpoint(f"erasure.before_{name}")
            lines += [ReceiptLine(name, *line) for line in await step()]
            failpoint(f"erasure.after_{name}")
            progress = 100 * number // len(self._steps)
            await self._claimed.update(steps=lines, progress=progress, why="")
        expires_at = int(self._container.clock.time()) + RECEIPT_DAYS * DAY_S
        await self._claimed.finish(state="done", progress=100, expires_at=expires_at, why="")

    # Steps

    async def _end_sessions(self) -> list[Line]:
        user = self._user
        devices = await self._privacy.lockout.end_access(user)
        password = await self._privacy.accounts.remove_credential(user)
        entries = await self._privacy.search_entries.remove(user)
        pushes = await self._container.get(PushContainer).subscriptions.remove_all(
            user, self._container.clock.time()
        )
        return [
            (DIRECTORY, "profile", 1),
            (DIRECTORY, "entries of the user search", entries),
            (DIRECTORY, "passwords", int(password)),
            (f"{DIRECTORY}, {REDIS}", "logins ended", devices),
            (DIRECTORY, "push subscriptions", pushes),
        ]

    async def _leave_chats(self) -> list[Line]:
        groups = directs = 0
        start = None
        while True:
            page = await self._container.directory.list_memberships(
                self._user, limit=CHATS_PAGE, start=start
            )
            for chat, _ in page.items:
                if chat.kind == "group":
                    groups += await self._leave_group(ChatId(chat.chat))
                else:
                    directs += 1
                    await self._close_direct_chat(ChatId(chat.chat))
            start = page.next
            if start is None:
                break
        return [
            (f"{DIRECTORY}, {REDIS}", "groups left", groups),
            (
                f"{DIRECTORY}, {REDIS}",
                "direct chats closed, kept for the other member",
                directs,
            ),
        ]

    async def _leave_group(self, chat: ChatId) -> bool:
        try:
            await self._container.membership.change(self._user, frames.Leave(0, chat, LEAVE_REF))
        except NotFound:
            return False  # the user has already left, but the index still has the chat
        return True

    async def _close_direct_chat(self, chat: ChatId) -> None:
        # Mark the chat as if the user had blocked the other member. After the erasure, nobody can
        # undo this.
        await self._container.moderation_rows.mark_chat(chat, self._user, is_blocked=True)
        await self._container.membership_propagation.apply_write_policy(
            await self._container.directory.get_chat(chat)
        )
        await self._privacy.rows.remove_membership_settings(chat, self._user)

    async def _erase_messages(self) -> list[Line]:
        """Delete the user's messages until no more are found.

        The `sender` index is eventually consistent, so the last search starts at least `SETTLE_S`
        after the first.
        """
        began = self._container.clock.monotonic()
        await wait_until_persisted(self._container)
        for number in range(PASSES_MAX):
            remaining, total = await self._run_erasure_pass(number)
            if number == 0:
                passed_s = self._container.clock.monotonic() - began
                await asyncio.sleep(max(0.0, SETTLE_S - passed_s))
            await wait_until_persisted(self._container)
            if remaining == 0 and number > 0:
                chats = await self._rewrite_archive()
                return [
                    (TIERS, "messages whose text was deleted", total),
                    (BUCKET, "chats deleted from the archive", chats),
                ]
        raise Unavailable(
            "erasure: new messages from the user are still being written; the worker will retry"
        )

    async def _run_erasure_pass(self, number: int) -> tuple[int, int]:
        """Delete the text of the user's entries.

        Return how many entries still had text, and how many messages were found.
        """
        matches = total = 0
        async for page in self._privacy.user_messages.iter_entries(self._user):
            for entry in page:
                total += entry.kind not in frames.ENTRY_KINDS
                # Deleting a message also deletes its edits. The next call deletes edits whose
                # messages no longer exist.
                if not has_text(entry) or (entry.kind == "edit" and number == 0):
                    continue
                matches += 1
                is_gone = await self._privacy.eraser.erase(self._user, entry)
                if not is_gone and number > 1:
                    # No message is left to delete, so remove the text directly in DynamoDB.
                    rev = max(entry.rev, entry.seq) + 1
                    await self._container.message_changes.clear_edit(entry.chat, entry.ts, rev)
                failpoint("erasure.in_messages")
        return matches, total

    async def _rewrite_archive(self) -> int:
        """Remove the user's messages from the archive; return how many chats were rewritten."""
        chats = await self._privacy.user_messages.list_chats(self._user)
        for chat in chats:
            await self._rewrite_chat(chat)
            failpoint("erasure.in_archive")
        return len(chats)

    async def _rewrite_chat(self, chat: ChatId) -> None:
        for attempts_left in reversed(range(REWRITE_TRIES_MAX)):
            try:
                await self._container.get(ArchiveContainer).archiver.merge_changes(chat)
                return
            except Conflict as exc:  # try again: another process is archiving the chat
                if not attempts_left:
                    raise Unavailable("a chat's archive keeps changing; try again") from exc
                await asyncio.sleep(0.1)

    async def _erase_companions(self) -> list[Line]:
        """Delete the text of companions' messages to the user, the summaries and the memories.

        `_check_erased` deletes the session items.
        """
        responses = sessions = 0
        memories = self._companions.memories
        async for session in iter_sessions(self._container, self._user):
            sessions += 1
            await memories.close(self._user, session.companion)
            async for page in iter_responses(self._container, session):
                for entry in page:
                    if has_text(entry):
                        responses += await self._privacy.eraser.erase(session.companion, entry)
        await wait_until_persisted(self._container)
        async for session in iter_sessions(self._container, self._user):
            await self._companions.summaries.drop(session.chat)
            await self._privacy.redis_data.remove_response_parts(session.chat)
            await self._rewrite_chat(session.chat)
        return [
            (TIERS, "companion responses whose text was deleted", responses),
            (SESSIONS, "sessions with companions", sessions),
        ]

    async def _erase_copies(self) -> list[Line]:
        count = await self._rewrite_exported(await self._list_chats())
        indexes = await self._erase_indexed(self._user)
        return [
            (BUCKET, "analytics files rewritten", count),
            (INDEX, "partitions of the search index compacted", indexes),
        ]

    async def _list_chats(self) -> set[ChatId]:
        """Return all chats that may contain messages from or to the user."""
        chats = set(await self._privacy.user_messages.list_chats(self._user))
        async for page in self._privacy.rows.iter_entries(self._user):
            chats |= {ChatId(entry.chat) for entry in page}
        async for session in iter_sessions(self._container, self._user):
            chats.add(session.chat)
        start = None
        while True:
            memberships = await self._container.directory.list_memberships(
                self._user, limit=CHATS_PAGE, start=start
            )
            chats |= {ChatId(chat.chat) for chat, _ in memberships.items}
            start = memberships.next
            if start is None:
                return chats

    async def _remove_files(self) -> list[Line]:
        names = await self._privacy.rows.list_names(self._user, FILE_PREFIX)
        for name in names:
            await self._remove_file(name)
        return [(f"{BUCKET}, {DIRECTORY}, {REDIS}", "files", len(names))]

    async def _remove_file(self, name: str) -> None:
        await self._attachments.sendable.drop([name])
        for _ in range(REMOVE_TRIES_MAX):
            file = await self._attachments.rows.find_file(name)
            if file is None:
                await self._privacy.rows.remove_row(self._user, FILE_PREFIX + name)
                return
            await self._attachments.objects.remove(file)
            failpoint("erasure.in_files")
            if await self._attachments.rows.remove_file(file):
                return
        raise Unavailable(
            f"file {name}: too many concurrent changes; try again",
            public="a file keeps changing; try again",
        )

    async def _remove_exports(self) -> list[Line]:
        names = await self._privacy.rows.list_names(self._user, EXPORT_PREFIX)
        for name in names:
            job = await self._privacy.jobs.find(name)
            if job is not None:
                await self._privacy.jobs.delete_waiting(job)
                await self._privacy.jobs.delete(name, job.expires_at)
                if job.state == "running":
                    # Wait until the export worker's lease has expired. After that, the worker can
                    # no longer upload the ZIP.
                    wait_s = job.until_ms / 1000 - self._container.clock.time()
                    await asyncio.sleep(max(0.0, min(wait_s, LEASE_S)))
            await self._privacy.exports.remove(name)
            await self._privacy.rows.remove_row(self._user, EXPORT_PREFIX + name)
        return [(f"{BUCKET}, {DIRECTORY}", "exports", len(names))]

    async def _remove_report_reasons(self) -> list[Line]:
        names = await self._privacy.rows.list_names(self._user, REPORTED_PREFIX)
        for name in names:
            await self._privacy.rows.remove_report_reason(name, self._user)
        return [(DIRECTORY, "reports; the reporter's id is kept", len(names))]

    async def _remove_traces(self) -> list[Line]:
        return [(REDIS, label, count) for label, count in (await self._delete_from_redis()).items()]

    async def _delete_from_redis(self) -> dict[str, int]:
        traces, user = self._privacy.redis_data, self._user
        chats = [session.chat async for session in iter_sessions(self._container, user)]
        return {
            "pushes in gateway streams": await traces.remove_gateway_pushes(user, SETTLE_S, chats),
            "calls of gateways": await traces.remove_calls(user),
            "webhook events and dead letters": await traces.remove_events(user, chats),
            "messages that could not be persisted": await traces.remove_dead_letters(user, chats),
            "stored answers": await self._container.idempotent_answers.remove_all(user),
        }

    async def _remove_rows(self) -> list[Line]:
        count = await self._privacy.rows.remove_rows(self._user)
        return [(DIRECTORY, "remaining rows: devices, blocks and others", count)]

    async def _remove_keys(self) -> list[Line]:
        count = await self._privacy.redis_data.remove_keys(self._user)
        return [(REDIS, "keys", count)]

    async def _check_erased(self) -> list[Line]:
        """Wait for operations in progress and repeat the deletion until no more data is found."""
        webhooks = self._container.settings.get(Webhooks)
        event_s = webhooks.timeout_s if webhooks.events_url is not None else 0.0
        for _ in range(PASSES_MAX):
            await asyncio.sleep(max(SETTLE_S, event_s))
            remaining, _ = await self._run_erasure_pass(1)
            remaining += sum((await self._delete_from_redis()).values())
            remaining += sum(
                count for *_, count in await SocialData(self._container, self._user).erase()
            )
            remaining += await self._privacy.rows.remove_rows(self._user)
            await self._privacy.redis_data.remove_keys(self._user)
            if remaining == 0:
                await self._rewrite_archive()
                await self._rewrite_exported(await self._list_chats())
                await self._erase_indexed(self._user)
                await self._privacy.rows.remove_archive_pointers(self._user)
                # Delete the sessions last, because they point to the companions' messages.
                await self._companions.session_rows.remove_all(self._user)
                return [(f"{TIERS}, {DIRECTORY}", "found in a second pass", 0)]
            await wait_until_persisted(self._container)
        raise Unavailable(
            "erasure: new data for the user is still being written; the worker will retry"
        )


def make_erasure_worker(container: StorageContainer, owner: str) -> JobWorker:

    async def erase(claimed: ClaimedJob) -> None:
        await Erasure(container, claimed).run()

    return JobWorker(container=container, owner=owner, kind="erasure", work=erase, tries_max=None)


async def run_erasures(container: StorageContainer, owner: str) -> None:
    """Run erasure jobs until cancelled.

    Raises:
        Unavailable: a data store is unavailable; restart the worker.
    """
    await make_erasure_worker(container, owner).run()
