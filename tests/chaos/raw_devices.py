"""Devices of the users in a simulation that use the protocol directly, without the SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.chaos.devices import PAGE, RETRY_S, EventRecorder
from tests.support.history.events import (
    Delivered,
    History,
    Line,
    LogEntry,
    Marked,
    Notified,
    Requested,
    Responded,
    Restarted,
    Unstored,
    Watermark,
)
from tests.support.rawchat import Failed, RawChat
from tests.support.wire import Ended

TEMPORARY = {"unavailable", "overloaded", "rate_limited"}


class RawDevice:
    """A device that uses the protocol directly: `RawChat` that reconnects like a `World` user."""

    is_sdk = False

    def __init__(self, recorder: EventRecorder, chat: RawChat) -> None:
        self.user = chat.user
        self.name = chat.device
        self.chat = chat
        self._recorder = recorder
        self._reading: set[asyncio.Task[None]] = set()
        self.problems: list[str] = []
        self._frames_taken = 0
        self._recorded = 0
        self._attempted: set[str] = set()  # refs
        self._epoch = ""

    @property
    def inbox(self) -> History:
        """The history of the device alone, to check its inbox."""
        return self.chat.recorder.history

    @property
    def is_online(self) -> bool:
        """True while connected."""
        return self.chat.is_connected

    def count_transitions(self) -> int:
        """Return the number of large-chat transitions that the device received."""
        chats = self.chat.of_type("event", kind="chat")
        return sum("since" in event.get("info", {}) for event in chats)

    async def perform(self, asked: Requested) -> None:
        """Send a message. Only the SDK devices perform other operations."""
        assert asked.kind == "send", asked
        await self.chat.send_nowait(asked.chat, asked.body, asked.ref)

    def collect(self) -> None:
        """Record the frames that arrived since the last call."""
        add, now = self._recorder.record, self._recorder.now()
        seen = self.inbox.events
        recorded, self._recorded = seen[self._recorded :], len(seen)
        # Record acks first: a watermark in the same batch may confirm them, but never an earlier
        # one.
        for each in recorded:
            match each:
                case Responded(code=code) if code not in TEMPORARY:
                    add(msgspec.structs.replace(each, t=now, conn=0, dup=False))
                case Requested(ref=ref) if ref in self._attempted:
                    # The answers of two attempts may differ, and the device takes the first.
                    t = each.t + now - self.chat.recorder.now()
                    add(msgspec.structs.replace(each, t=t, conn=0))
                case Requested(ref=ref):
                    self._attempted.add(ref)
                case Marked():
                    add(msgspec.structs.replace(each, t=now))
                case _:
                    pass
        frames, self._frames_taken = self.chat.frames[self._frames_taken :], len(self.chat.frames)
        for frame in frames:
            self._check_epoch(frame)
            for event in self._events_of(frame, now):
                add(event)
            if frame["type"] in {"too_long", "reset"}:
                for line in frame["chats"]:
                    self._catch_up(line["chat"])

    def _check_epoch(self, frame: dict[str, Any]) -> None:
        """Record a violation of P5 if the event's epoch was not announced by a `reset`."""
        match frame:
            case {"type": "welcome", "epoch": epoch} if not self._epoch:
                self._epoch = epoch
            case {"type": "reset" | "too_long", "cursor": {"epoch": epoch}}:
                self._epoch = epoch
            case {"type": "event", "epoch": epoch, "chat": chat} if epoch != self._epoch:
                self.problems.append(
                    f"{self.name}: event of {chat} of epoch {epoch} before its reset"
                )
            case _:
                pass

    def unstored(self, chat: str) -> Unstored:
        """Return the device's operations in a chat that are not confirmed as stored."""
        waiting = [pending for pending, _ in self.chat.unstored.values()]
        waiting += [*self.chat.lost, *self.chat.pending.values()]  # sent again
        refs = tuple(pending.ref for pending in waiting if pending.chat == chat)
        return Unstored(self.user, self.name, chat, refs)

    def _events_of(self, frame: dict[str, Any], now: float) -> list[Any]:
        names = (now, self.user, self.name)
        match frame:
            case {"type": "event", "message": entry, "chat": chat}:
                shown = msgspec.convert(entry, LogEntry)
                return [Delivered(*names, chat, shown, event=frame.get("seq", 0))]
            case {"type": "event" | "signal", "chat": chat, "kind": what}:
                return [Notified(*names, chat, what, frame.get("seq", 0))]
            case {"type": "too_long"} | {"type": "reset"}:
                return [Restarted(*names, frame["type"] == "reset")]
            case {"type": "stored", "chat": chat, "upto": upto}:
                return [Watermark(*names, chat, upto)]
            case _:
                return []

    def _catch_up(self, chat: str) -> None:
        """Read the entries that the server does not deliver."""

        async def read() -> None:
            place, more = 0, True
            while more:
                try:
                    page = await self.chat.request("history", chat=chat, after=place, limit=PAGE)
                except Failed as exc:
                    if not exc.is_temporary:
                        return
                except (Ended, OSError, TimeoutError, AssertionError):
                    pass
                else:
                    for fields in page["messages"]:
                        entry = msgspec.convert(fields, LogEntry)
                        names = (self._recorder.now(), self.user, self.name, chat)
                        self._recorder.record(Delivered(*names, entry, is_read=True))
                        place = entry.seq
                    more = page["more"]
                    continue
                await asyncio.sleep(RETRY_S)

        task = asyncio.create_task(read(), name=f"{self.name} reads {chat}")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def read_lines(self, chats: set[str]) -> list[Line]:
        """Read the chat list from the server."""
        while True:
            try:
                lines = await self.chat.read_list()
            except (Failed, Ended, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
                continue
            return [
                Line(self.user, self.name, chat, line.get("top", 0), line.get("unread", 0))
                for chat, line in lines.items()
                if chat in chats
            ]
