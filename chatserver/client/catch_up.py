"""Backfill of gaps after a disconnect, and comparison of entries after Redis data loss.

After a `too_long` or `reset`, the stored entries of chats that are not in the snapshot are read
again: only the snapshot and the history show which messages the user deleted for themselves.

No I/O. At most `REQUESTS_MAX` page requests are open at a time. A gap that cannot be read in
`ATTEMPTS_MAX` attempts, or that exceeds `fill_max` entries, is reported as `Skipped`. Therefore, an
unavailable storage tier delays new messages in a chat only by the time of these attempts (waits of
15 seconds in total, or longer if the server requests it).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import msgspec

from chatserver.client.chat import Chat
from chatserver.client.events import Event, Skipped
from chatserver.client.model import Entry, parse_entry
from chatserver.client.request_queue import Answer, SendRequest
from chatserver.errors import ChatError

REQUESTS_MAX = 2
ATTEMPTS_MAX = 5
PAGE = 200
RETRY_S = 0.5


class _Job(msgspec.Struct, eq=False):
    chat: Chat
    is_forced: bool  # True: request a page even if no gap is known
    is_requested: bool = False
    before: int | None = None  # the comparison continues with the page before this seq
    refresh_before: int | None = None  # stored entries below this seq must be read again
    read: int = 0
    attempts: int = 0
    not_before: float = 0.0
    waits_for: int | None = None  # until this seq is pushed, events may still fill the gap


@attrs.define(eq=False, repr=False)
class CatchUp:
    """The backfills of one device.

    In a new epoch, a chat is *unverified* until its entries have been compared with the server's.
    """

    _send_request: SendRequest
    _emit: Callable[[Iterable[Event]], None]
    _fill_max: int
    _jobs: dict[str, _Job] = attrs.field(factory=dict, init=False)

    def schedule(self, chat: Chat, *, is_forced: bool = False) -> None:
        """Schedule a backfill if `chat` has a gap, is unverified (see the class), or `is_forced`.

        `is_forced`: also read the stored entries again.
        """
        if chat.log.is_unverified or chat.log.has_gap or is_forced:
            job = self._jobs.setdefault(chat.id, _Job(chat, is_forced))
            if is_forced:
                job.is_forced = True
                job.refresh_before = max(chat.log.newest, chat.log.shown or 0) + 1
            if job.waits_for is not None and chat.log.pushed >= job.waits_for:
                job.waits_for, job.not_before = None, 0.0

    def is_scheduled(self, chat: Chat) -> bool:
        return chat.id in self._jobs

    def restart(self, chat: Chat, *, is_forced: bool = False) -> None:
        """Restart the backfill of a chat in a new epoch."""
        self._jobs.pop(chat.id, None)
        self.schedule(chat, is_forced=is_forced)

    def cancel(self, chat: Chat) -> None:
        self._jobs.pop(chat.id, None)

    def handle_disconnect(self) -> None:
        """Reset the requests in flight; no response will arrive."""
        for job in self._jobs.values():
            job.is_requested = False

    def list_due_times(self) -> list[float]:
        """Return the times at which the backfills may request their next pages."""
        return [job.not_before for job in self._jobs.values() if not job.is_requested]

    def request_pages(self, now: float) -> None:
        requested = sum(job.is_requested for job in self._jobs.values())
        for job in list(self._jobs.values()):
            if requested >= REQUESTS_MAX:
                break
            if job.is_requested or job.not_before > now:
                continue
            fields = self._next_request(job)
            if fields is None:
                del self._jobs[job.chat.id]
                continue
            requested += 1
            job.is_requested = True
            handle = functools.partial(self._handle_answer, job, "after" in fields)
            self._send_request(fields, handle, now)

    def _next_request(self, job: _Job) -> dict[str, Any] | None:
        log = job.chat.log
        window: dict[str, Any] = {"type": "history", "chat": job.chat.id, "limit": PAGE}
        if log.is_unverified:
            return window if job.before is None else {**window, "before": job.before}
        if log.shown is None:
            return None
        if log.has_gap or job.is_forced:
            if log.top - log.shown > self._fill_max:
                self._skip(job, log.top - self._fill_max)
            return {**window, "after": log.shown}
        if job.refresh_before is not None and 0 < log.bottom < job.refresh_before:
            return {**window, "before": job.refresh_before}
        return None

    def _handle_answer(self, job: _Job, is_fill: bool, answer: Answer, now: float) -> None:
        if self._jobs.get(job.chat.id) is not job:
            return  # the page was requested in an earlier epoch
        job.is_requested = False
        log = job.chat.log
        if isinstance(answer, ChatError):
            # If the user has left, the server refuses the page, but delayed events from the time
            # of the membership may still fill the gap.
            is_pending = log.has_gap and log.find_gap_end() >= log.pushed
            if answer.temporary or is_pending:
                self._schedule_retry(job, now, (answer.retry_after_ms or 0) / 1000)
            else:
                self._abort(job)
            return
        page = [parse_entry(fields) for fields in answer["messages"]]
        if log.is_unverified:
            self._compare(job, page, has_older=answer["more"])
        elif is_fill:
            self._fill(job, page, now, has_more=answer["more"])
        else:
            self._refresh(job, page, has_older=answer["more"])

    def _fill(self, job: _Job, page: list[Entry], now: float, *, has_more: bool) -> None:
        log = job.chat.log
        assert log.shown is not None
        before = log.shown
        for entry in page:
            log.put(entry)
        self._emit(job.chat.release_events())
        # The user rejoined and cannot read the entries before the page. Wait if events from the
        # earlier membership may still deliver them; otherwise, skip them.
        while page and log.has_gap and log.shown < page[0].seq - 1:
            upto = log.find_gap_end()
            if upto >= log.pushed:
                job.waits_for = upto + 1
                break
            self._skip(job, upto)
            self._emit(job.chat.release_events())
        job.is_forced = has_more and bool(page)
        if log.shown > before:
            job.attempts = 0
        elif log.has_gap:
            self._schedule_retry(job, now, 0.0)

    def _refresh(self, job: _Job, page: list[Entry], *, has_older: bool) -> None:
        job.attempts = 0
        job.refresh_before = page[0].seq if page and has_older else None
        self._emit(job.chat.refresh(page))

    def _compare(self, job: _Job, page: list[Entry], *, has_older: bool) -> None:
        chat = job.chat
        job.read += len(page)
        found = chat.log.verify(page, has_older=has_older)
        if found is None and job.read >= self._fill_max:
            found = chat.log.abort_verification()
        if found is None:
            job.before = page[0].seq
            return
        job.attempts = 0
        self._emit(chat.apply_verification(found))

    def _schedule_retry(self, job: _Job, now: float, advice_s: float) -> None:
        job.attempts += 1
        job.not_before = now + max(advice_s, RETRY_S * 2**job.attempts)
        if job.attempts >= ATTEMPTS_MAX:
            self._abort(job)

    def _abort(self, job: _Job) -> None:
        chat = job.chat
        job.is_forced = False
        job.refresh_before = None
        job.attempts = 0
        if chat.log.is_unverified:
            self._emit(chat.apply_verification(chat.log.abort_verification()))
        elif chat.log.has_gap:
            self._skip(job, chat.log.find_gap_end())
        chat.needs_history = True
        self._emit(chat.release_events())

    def _skip(self, job: _Job, upto: int) -> None:
        log = job.chat.log
        assert log.shown is not None
        self._emit([Skipped(job.chat.id, log.shown, upto)])
        log.skip(upto)
        job.chat.needs_history = True
