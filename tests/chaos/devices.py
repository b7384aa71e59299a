"""Devices of the users in a simulation that use the Python SDK; see `raw_devices` for others.

A device performs each requested operation, retrying with the same ref until the outcome is known,
and records everything that it receives.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from chatserver.client import ChatClient, MemoryStore, events
from chatserver.client.model import Bounds, Entry
from chatserver.errors import ChatError
from chatserver.protocol import frames
from tests.support.history.events import (
    Delivered,
    Event,
    Kept,
    Line,
    LogEntry,
    Marked,
    Named,
    Notified,
    Page,
    ReadMark,
    Requested,
    Responded,
    Restarted,
    Skipped,
    Unstored,
    Watermark,
    Withdrawn,
)

OPEN_S = 60.0  # all gateways may be starting on a busy machine
RETRY_S = 0.3
PAGE = 100


_get_shown = operator.attrgetter(*LogEntry.__struct_fields__)


def shown_of(entry: Entry) -> LogEntry:
    """Convert an entry to the history format."""
    return LogEntry(*_get_shown(entry))


class EventRecorder(Protocol):
    """Records the events of a history."""

    def now(self) -> float:
        """Return the seconds since the run began."""

    def record(self, event: Event) -> None:
        """Record an event."""


class SdkDevice:
    """A device on `ChatClient` with a store, so that its process can be restarted."""

    is_sdk = True

    def __init__(
        self,
        recorder: EventRecorder,
        user: str,
        name: str,
        url: str,
        token: Callable[[], str],
        *,
        bounds: Bounds | None = None,
    ) -> None:
        self.user = user
        self.name = name
        self.problems: list[str] = []
        self._unanswered: dict[str, Requested] = {}  # by ref
        self._responses: set[tuple[str, str, int]] = set()
        self.waits: list[float] = []  # the delay before each reconnect
        self._recorder = recorder
        self._url = url
        self._get_token = token
        self._bounds = bounds
        self._store = MemoryStore()
        self._client: ChatClient | None = None
        self._is_open = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._reading: set[asyncio.Task[None]] = set()

    # lifecycle

    async def open(self) -> None:
        """Open the device; it resumes from its store."""

        async def token() -> str:
            return self._get_token()

        client = ChatClient(
            self._url,
            token,
            device=self.name,
            store=self._store,
            bounds=self._bounds,
            open_s=OPEN_S,
        )
        self._client = await client.__aenter__()
        self._listening = asyncio.create_task(self._listen(client), name=f"events of {self.name}")
        self._is_open.set()

    async def close(self) -> None:
        """Close the device gracefully and read all events that were already delivered.

        The next process receives again the events that the application had not consumed when the
        client closed, and those consumed just before.
        """
        if self._client is None or self._listening is None:
            return
        self._is_open.clear()
        client, self._client = self._client, None
        await client.__aexit__(None, None, None)
        await self._listening
        self._record_attempts()

    async def restart(self) -> None:
        """Close the device and open it again, like an application update."""
        if self._is_open.is_set():
            await self.close()
            await self.open()

    async def ready(self) -> ChatClient:
        """Wait for the client and return it."""
        while self._client is None or not self._is_open.is_set():
            await self._is_open.wait()
        return self._client

    @property
    def is_online(self) -> bool:
        """True while connected."""
        return self._client is not None and self._client.is_online

    # events

    async def _listen(self, client: ChatClient) -> None:
        try:
            async for event in client.events():
                self._handle_event(event)
        except ChatError as exc:
            if self._client is client:  # the test did not close the client
                self.problems.append(f"{self.name} ended: {exc!r}")

    def _handle_event(self, event: events.Event) -> None:
        now, names = self._recorder.now(), (self.user, self.name)
        add = self._recorder.record
        match event:
            case events.MessageAdded(chat, entry) | events.MemberChanged(chat, entry):
                add(Delivered(now, *names, chat, shown_of(entry)))
            case events.MessageChanged(chat, entry, _):
                add(Delivered(now, *names, chat, shown_of(entry)))
            case events.PinsChanged(chat, entry):
                add(Delivered(now, *names, chat, shown_of(entry)))
            case events.ChatChanged(chat, Entry() as entry):
                add(Delivered(now, *names, chat, shown_of(entry)))
            case events.ChatChanged(chat, None):
                add(Notified(now, *names, chat, "the chat"))
            case events.Marked(chat, user, read, received):
                add(Marked(now, *names, chat, user, read, received))
            case events.SignalReceived(_, _, str() as chat, _):
                add(Notified(now, *names, chat, "a signal"))
            case events.Acked(ref, chat, seq, ts, mid):
                self._record_response(Responded(now, self.user, chat, ref, "", seq, ts, mid))
            case events.Refused(ref, chat, error):
                self._record_response(Responded(now, self.user, chat, ref, error.code))
            case events.StoredUpto(chat, upto):
                add(Watermark(now, *names, chat, upto))
            case events.Skipped(chat, after, upto):
                add(Skipped(now, *names, chat, after, upto))
                self._catch_up(chat)
            case events.Restarted(is_new_epoch, chats):
                add(Restarted(now, *names, is_new_epoch))
                for chat in chats:
                    self._catch_up(chat)
            case events.Disconnected(_, retry_in_s):
                self.waits.append(retry_in_s)
                self._record_attempts()
            case events.EntriesWithdrawn(chat, seqs, after):
                add(Withdrawn(now, *names, chat, seqs, after))
            case _:
                pass

    def _record_response(self, response: Responded) -> None:
        """Record a response once: it may arrive as an event, as the result of a call, or both."""
        key = (response.ref, response.code, response.seq)
        if key not in self._responses:
            self._responses.add(key)
            self._unanswered.pop(response.ref, None)
            self._recorder.record(msgspec.structs.replace(response, device=self.name))

    def _record_attempts(self) -> None:
        """Record that the SDK tries again. The attempts before may still be committed."""
        now = self._recorder.now()
        for asked in self._unanswered.values():
            self._recorder.record(msgspec.structs.replace(asked, t=now))

    def _catch_up(self, chat: str) -> None:
        """Read the entries that are not delivered, like an application showing the chat."""

        async def read() -> None:
            for entry in await self.read_whole(chat):
                now = self._recorder.now()
                self._recorder.record(
                    Delivered(now, self.user, self.name, chat, entry, is_read=True)
                )

        task = asyncio.create_task(read(), name=f"{self.name} reads {chat}")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    # operations

    async def perform(self, asked: Requested) -> None:
        """Perform a message operation. The response arrives as an event."""
        client = await self.ready()
        chat, ref = asked.chat, asked.ref
        self._unanswered[ref] = asked
        known = client.find_chat(chat)
        target_ref = known.log.find_ref(asked.target) if known and asked.target else None
        if target_ref is not None:  # the SDK sends it
            self._recorder.record(Named(self._recorder.now(), self.user, chat, ref, target_ref))
        # A full queue of events drops the responses that a call returns.
        try:
            match asked.kind:
                case "send":
                    client.post(chat, asked.body, ref=ref)
                    return
                case "edit":
                    ack = await client.edit(chat, asked.target, asked.body, ref=ref)
                case "react":
                    ack = await client.react(chat, asked.target, asked.body, ref=ref)
                case "delete":
                    ack = await client.delete(chat, asked.target, ref=ref)
                case "hide":
                    ack = await client.delete(chat, asked.target, scope="me", ref=ref)
                case other:
                    raise AssertionError(other)
        except ChatError as exc:
            if exc.temporary:  # no response in time; it will arrive as an event
                return
            response = Responded(self._recorder.now(), self.user, chat, ref, exc.code)
        else:
            place = (ack.seq, ack.ts, ack.mid)
            response = Responded(self._recorder.now(), self.user, chat, ref, "", *place)
        self._record_response(response)

    async def retry(self, request: Callable[[ChatClient], Awaitable[object]]) -> str:
        """Retry a request until the outcome is known; return the error code, or "" for success."""
        while True:
            client = await self.ready()
            try:
                await request(client)
            except ChatError as exc:
                if not exc.temporary:
                    return exc.code
                await asyncio.sleep(RETRY_S)
            else:
                return ""

    async def read_page(self, chat: str, before: int | None) -> None:
        """Read a history page during the run. It may fail: tiers may be unavailable."""
        client = await self.ready()
        known = client.find_chat(chat)
        if known is None or known.log.shown is None:
            return  # the newest page and all earlier entries would count as delivered
        with contextlib.suppress(ChatError):
            page = await client.history(chat, before=before, limit=20)
            entries = tuple(map(shown_of, page.entries))
            self._recorder.record(Page(self._recorder.now(), self.user, chat, entries))

    # end of the run

    def targets(self, chat: str) -> list[Entry]:
        """Return the messages that the device has and that are not deleted."""
        if self._client is None:
            return []
        return [entry for entry in self._client.messages(chat) if not entry.deleted]

    def newest(self, chat: str) -> int:
        """Return the newest seq known to the device."""
        known = self._client.find_chat(chat) if self._client is not None else None
        return 0 if known is None else known.top

    def unread(self, chat: str) -> int:
        """Return the unread count that the device shows."""
        assert self._client is not None
        known = self._client.find_chat(chat)
        return 0 if known is None else known.unread

    def hides(self, chat: str, seq: int) -> bool:
        """Return whether the device shows a message as deleted, or not at all."""
        assert self._client is not None
        known = self._client.find_chat(chat)
        entry = None if known is None else known.log.find(seq)
        return entry is None or entry.deleted

    def kept(self, chat: str) -> Kept:
        """Return the messages of a chat that the device has stored."""
        assert self._client is not None
        kept = tuple(map(shown_of, self._client.messages(chat)))
        return Kept(self.user, self.name, chat, kept)

    async def read_whole(self, chat: str) -> tuple[LogEntry, ...]:
        """Read the whole history of a chat."""
        entries: list[Entry] = []

        async def read(client: ChatClient) -> None:
            entries.clear()
            more = True
            while more:
                after = entries[-1].seq if entries else 0
                page = await client.history(chat, after=after, limit=PAGE)
                entries.extend(page.entries)
                more = page.has_more and bool(page.entries)

        code = await self.retry(read)
        return () if code else tuple(map(shown_of, entries))

    async def read_counts(self) -> list[tuple[str, int, int]]:
        """Return each chat of the list with its read mark and unread count."""
        counts: list[tuple[str, int, int]] = []

        async def read(client: ChatClient) -> None:
            counts.clear()
            after: str | None = None
            while True:
                page = await client.chats(after=after, limit=PAGE)
                counts.extend((chat.id, chat.read, chat.unread) for chat in page.chats)
                after = page.next
                if after is None:
                    break

        await self.retry(read)
        return counts

    async def list_marks(self) -> None:
        """Record the user's read marks from the server. It may fail.

        A mark of `ChatClient.chats` would not do: the client keeps the highest one.
        """
        client = await self.ready()
        asked = self._recorder.now()
        try:
            page = await client.request(frames.Chats(0, limit=PAGE), frames.ChatsPage)
        except ChatError:
            return
        now = self._recorder.now()
        for chat in page.chats:
            self._recorder.record(ReadMark(asked, now, self.user, chat.chat, chat.read))

    def unstored(self, chat: str) -> Unstored:
        """Return the device's operations in a chat that are not confirmed as stored."""
        assert self._client is not None
        refs = tuple(operation.ref for operation in self._client.pending_operations(chat))
        return Unstored(self.user, self.name, chat, refs)

    async def read_lines(self, chats: set[str]) -> list[Line]:
        """Read the chat list from the server."""
        lines: list[Line] = []

        async def read(client: ChatClient) -> None:
            lines.clear()
            after: str | None = None
            while True:
                page = await client.chats(after=after, limit=PAGE)
                lines.extend(Line(self.user, self.name, c.id, c.top, c.unread) for c in page.chats)
                after = page.next
                if after is None:
                    break

        await self.retry(read)
        return [line for line in lines if line.chat in chats]
