"""The client as a pure state machine.

Its input is frames, commands and time; its output is frames, events and responses. It has no I/O,
clock or randomness: each input comes with the time `now`, in seconds of any monotonic clock.
`chatserver.client.client` owns the socket and transfers frames in both directions.

The state is the cursor, the loaded chats, the outbox and the open requests. Invariants:

* within an epoch, the cursor advances one event at a time or to the cursor of a snapshot;
* frames from a closed connection are ignored; the server sends their content again;
* each seq of a chat is delivered once (`chatserver.client.chat_log`), each ref is acked once
  (`chatserver.client.outbox`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from chatserver.client.catch_up import CatchUp
from chatserver.client.chat import Chat
from chatserver.client.companion_responses import KIND as COMPANION_SIGNAL
from chatserver.client.companion_responses import CompanionResponses
from chatserver.client.events import (
    ChatChanged,
    Connected,
    Event,
    Restarted,
    SignalReceived,
    StoredUpto,
)
from chatserver.client.inbox_sync import InboxSync
from chatserver.client.model import Bounds, parse_entry
from chatserver.client.outbox import Outbox, OutboxEntry, OutboxSender
from chatserver.client.presence_subscriptions import PresenceSubscriptions
from chatserver.client.request_queue import (
    Answer,
    Fields,
    OnAnswer,
    QueuedRequest,
    RequestQueue,
    check_text,
)
from chatserver.protocol.frames import LARGE_MAX, PROTOCOL_VERSION, UNSTORED_MAX, Cursor

ANSWER_S = 10.0
CLEARED_MAX = 2_000  # maximum cleared chats that are remembered; one more replaces the oldest


class QueuedEvent(NamedTuple):
    """An event for the application.

    `before` is a cursor: a client that resumes there receives the event again.
    """

    event: Event
    before: Cursor | None
    is_known: bool = False  # True if a waiting call has already returned this ack or refusal


class ClientState:
    """The state of one device of a user."""

    def __init__(self, device: str, bounds: Bounds | None = None) -> None:
        self.device = device
        self.bounds = bounds or Bounds()
        self.user = ""
        self.cursor: Cursor | None = None
        self.limits: Fields = {}
        self.chats: dict[str, Chat] = {}
        self.outbox = Outbox(self.bounds.outbox_max)
        self.is_online = False
        self._connection = 0
        self._requests = RequestQueue(self.bounds.requests_max)
        self.catch_up = CatchUp(self._send_connection_request, self._emit, self.bounds.fill_max)
        self.companion_responses = CompanionResponses(self._send_connection_request, self._emit)
        self._sender = OutboxSender(
            outbox=self.outbox,
            next_id=self._requests.next_id,
            emit=self._emit,
            is_left=self._is_left,
        )
        self._unstored_in_hello: dict[str, int] = {}  # in the last hello
        self._cleared: dict[str, int] = {}  # chat → seq up to which it is cleared
        # Chat → the seq after which the last welcome started delivery.
        self._started_by_welcome: dict[str, int] = {}
        self._presence = PresenceSubscriptions(self.notify, self.bounds.watched_max)
        self._is_reset_pending = False  # True: send no operations until `reset` arrives
        self._is_paused = False
        self._sync = InboxSync(
            self._send_connection_request, self._handle_event, lambda: self.cursor
        )
        self._frames: list[Fields] = []
        self._events: list[QueuedEvent] = []
        self._before: Cursor | None = None  # the cursor before the event being applied
        self._answers: list[tuple[int, Answer]] = []

    def pop_frames(self) -> list[Fields]:
        """Remove and return the frames to send on the current connection, in order."""
        frames, self._frames = self._frames, []
        return frames

    def pop_queued_events(self) -> list[QueuedEvent]:
        """Remove and return the events to deliver, each with the cursor before it."""
        queued, self._events = self._events, []
        return queued

    def pop_events(self) -> list[Event]:
        return [queued.event for queued in self.pop_queued_events()]

    def pop_answers(self) -> list[tuple[int, Answer]]:
        """Remove and return the responses, each with its request number."""
        answers, self._answers = self._answers, []
        return answers

    def get_next_tick(self, now: float) -> float | None:
        """Return the time at which `tick` must be called if there is no other input."""
        times = self._requests.list_due_times()
        if self.is_online:
            times += self.outbox.list_due_times()
            if not self._is_paused:
                times += [*self.catch_up.list_due_times(), self._sync.not_before]
        return min((time for time in times if time > now), default=None)

    def build_hello(self, token: str, state: str = "fg") -> Fields:
        """Return the first frame of a connection."""
        fields: Fields = {
            "type": "hello",
            "v": PROTOCOL_VERSION,
            "token": token,
            "device": self.device,
            "state": state,
        }
        if self.cursor is not None:
            fields["cursor"] = msgspec.to_builtins(self.cursor)
            # Leave out unverified chats: in this epoch, their seqs may belong to other entries.
            known = [c for c in self.chats.values() if c.is_large and not c.log.is_unverified]
            # Chats beyond the limit start at their newest entry; history has the older entries.
            large = {chat.id: chat.log.shown or 0 for chat in known[:LARGE_MAX]}
            if large:
                fields["large"] = large
            self._unstored_in_hello = self.outbox.get_unstored(UNSTORED_MAX)
            if self._unstored_in_hello:
                fields["unstored"] = self._unstored_in_hello
        return fields

    def handle_welcome(self, welcome: Fields, now: float) -> int:
        """Handle the welcome; return the connection number to pass to `handle_frame`."""
        self.user = welcome["user"]
        self.limits = welcome.get("limits", {})
        self.is_online = True
        self._connection += 1
        self._sync.is_behind = False
        is_fresh = self.cursor is None
        if self.cursor is None:
            self.cursor = Cursor(welcome["epoch"], welcome["seq"])
            for chat in self.chats.values():  # from the cache, possibly outdated
                chat.mark_unverified()
        self._is_reset_pending = self.cursor.epoch != welcome["epoch"]
        if not self._is_reset_pending:
            self.outbox.postpone_probes(self._unstored_in_hello, now)
        self._unstored_in_hello = {}
        self._emit([Connected(self.user)])
        self._presence.renew()
        self._apply_large_chats(welcome.get("large", []), is_fresh=is_fresh)
        self.companion_responses.handle_reconnect(now)
        self.tick(now)
        return self._connection

    def handle_disconnect(self, now: float) -> None:
        self.is_online = False
        self._sync.is_syncing = False
        self._frames.clear()
        self._sender.handle_disconnect()
        self._requests.handle_disconnect()
        self.catch_up.handle_disconnect()
        self.tick(now)

    def handle_frame(self, connection: int, frame: Fields, now: float) -> None:
        if connection != self._connection or not self.is_online:
            return
        match frame["type"]:
            case "event":
                self._handle_event(frame, now)
            case "ack":
                self._sender.handle_ack(frame, now)
            case "error":
                self._handle_error(frame, now)
            case "stored":
                self._handle_stored(frame["chat"], frame["upto"], now)
            case "signal":
                self._handle_signal(frame, now)
            case "too_long" | "reset":
                self._apply_snapshot(frame, now)
            case "ok" | "page" | "turn":
                self._requests.handle_answer(frame, now)
            case _:
                pass  # from a newer server
        self.tick(now)

    def tick(self, now: float) -> None:
        """Send the requests and retries that are due, and fail expired requests."""
        self._requests.expire(now)
        if not self.is_online:
            return
        if not self._is_reset_pending:
            in_flight_max = self.limits.get("sends_in_flight_max", 64)
            self._frames += self._sender.next_frames(now, in_flight_max)
        if not self._is_paused:
            self._sync.request_page(now)
            self.catch_up.request_pages(now)
        self._frames += self._requests.next_frames(now)

    def enqueue(self, operation: OutboxEntry, now: float) -> None:
        """Queue an operation; `Acked` or `Refused` reports its outcome.

        Raises:
            BadRequest: a string contains a lone surrogate.
            Conflict: the `ref` belongs to another operation.
            Overloaded: the outbox is full.
        """
        check_text(operation.fields)
        target_ref = self._find_target_ref(operation)
        if target_ref is not None:
            operation.fields = {**operation.fields, "target_ref": target_ref}
        self.outbox.put(operation)
        self.tick(now)

    def _find_target_ref(self, operation: OutboxEntry) -> str | None:
        """Return the `ref` of the message that an operation changes; None if it is unknown.

        If the server loses the message, the operation must not change another one with its seq.
        """
        known, chat = self.outbox.find(operation.ref), self.chats.get(operation.chat)
        seq = operation.fields.get("seq")
        if known is not None:
            return known.fields.get("target_ref")
        if seq is None:
            return None
        acked = (own.ref for own in self.outbox.list_acked(operation.chat) if own.seq == seq)
        return (chat and chat.log.find_ref(seq)) or next(acked, None)

    def send_request(self, fields: Fields, now: float, deadline: float) -> int:
        """Send a request and return its number; `pop_answers` returns the response.

        Raises:
            BadRequest: a string contains a lone surrogate.
            Overloaded: too many requests are pending.
        """
        check_text(fields)

        def handle_answer(answer: Answer, when: float) -> None:
            self._answers.append((request.id, answer))

        request = QueuedRequest(fields, handle_answer, deadline, is_retried=True)
        self._requests.add(request)
        self.tick(now)
        return request.id

    def cancel_request(self, number: int) -> None:
        """Drop a request whose caller no longer waits."""
        self._requests.remove(number)

    def notify(self, fields: Fields) -> None:
        """Send a frame that gets no response; drop it if there is no connection."""
        check_text(fields)
        if self.is_online:
            self._frames.append(fields)

    def watch(self, users: list[str]) -> None:
        """Subscribe to the presence of users, on this connection and later ones.

        Raises:
            Overloaded: too many subscriptions.
        """
        self._presence.add(users)

    def unwatch(self, users: list[str]) -> None:
        self._presence.remove(users)

    def redeliver(self, events: Iterable[Event]) -> None:
        """Deliver events that a previous process of this device left unconsumed."""
        self._emit(events)

    def pause(self, now: float, *, is_paused: bool) -> None:
        """Pause or resume events. While paused, events stay on the server; responses arrive."""
        self._is_paused = is_paused
        self.tick(now)

    def apply_chat_list(self, page: Fields) -> None:
        for summary in page["chats"]:
            chat = self.get_or_create_chat(summary["chat"])
            chat.is_left = False
            self._emit(chat.apply_summary(summary))

    def apply_history(self, page: Fields, *, is_newest: bool, before: int | None = None) -> None:
        """Apply a page of history that the application requested."""
        chat = self.get_or_create_chat(page["chat"])
        entries = [parse_entry(fields) for fields in page["messages"]]
        self._emit(chat.apply_page(entries, is_newest=is_newest, before=before))
        self.catch_up.schedule(chat)

    def refresh(self, page: Fields) -> None:
        """Update stored entries from a page of history that the application did not request."""
        chat = self.chats.get(page["chat"])
        if chat is not None and not chat.log.is_unverified:
            self._emit(chat.refresh([parse_entry(fields) for fields in page["messages"]]))

    def remove_chat(self, name: str) -> None:
        """Remove a chat that the user can no longer read."""
        chat = self.chats.pop(name, None)
        if chat is not None:
            self.catch_up.cancel(chat)

    def clear_chat(self, name: str, upto: int) -> bool:
        """Remove messages up to seq `upto`; return False if they are already removed."""
        if upto <= self._cleared.get(name, 0):
            return False
        self._cleared.pop(name, None)
        if len(self._cleared) >= CLEARED_MAX:
            del self._cleared[next(iter(self._cleared))]
        self._cleared[name] = upto
        if name in self.chats:
            self.chats[name].clear(upto)
        return True

    def apply_info(self, info: Fields) -> None:
        self.get_or_create_chat(info["chat"]).apply_info(info)

    def get_or_create_chat(self, name: str) -> Chat:
        """Return or create a chat; if there are too many, evict the least recently active one."""
        chat = self.chats.pop(name, None)
        if chat is None:  # first reference to it
            if len(self.chats) >= self.bounds.chats_max:
                evicted = self.chats.pop(next(iter(self.chats)))
                self.catch_up.cancel(evicted)
            chat = Chat(name, self.user, self.bounds)
            chat.clear(self._cleared.get(name, 0))
        self.chats[name] = chat  # the last chat is the most recently active one
        return chat

    def _handle_event(self, frame: Fields, now: float) -> None:
        if frame["seq"] == 0:
            self._handle_large_event(frame, now)
            return
        cursor = self.cursor
        assert cursor is not None
        position = Cursor(frame["epoch"], frame["seq"])
        if position.epoch == cursor.epoch and position.seq <= cursor.seq:
            return
        if self._is_paused or position != Cursor(cursor.epoch, cursor.seq + 1):
            self._sync.is_behind = True
            return
        self._before, self.cursor = cursor, position
        self._apply_event(frame, now)
        self._before = None

    def _apply_event(self, frame: Fields, now: float) -> None:
        chat = self.get_or_create_chat(frame["chat"])
        if "message" in frame:
            self._apply_entry(chat, frame["message"], now)
        elif "read" in frame:
            self._emit(chat.apply_marks(frame["read"]))
        elif "hidden" in frame:
            self._emit(chat.hide(frame["hidden"]))
        elif "info" in frame:
            chat.apply_info(frame["info"])
            self._apply_transition(chat, frame["info"])
            self.catch_up.schedule(chat)
            self._emit([ChatChanged(chat.id)])

    def _apply_entry(self, chat: Chat, fields: Fields, now: float) -> None:
        entry = parse_entry(fields)
        chat.is_left = entry.kind == "member" and entry.user == self.user and not entry.role
        if chat.is_left:
            chat.is_large = False
            self.outbox.schedule_probes(chat.id, now)
        self._emit(chat.apply_entry(entry))
        self.catch_up.schedule(chat)
        operation = self.outbox.find(entry.ref) if entry.sender == self.user else None
        if operation is not None and operation.chat == chat.id and not operation.is_stored_required:
            position = (entry.seq, entry.ts, entry.mid)
            self._sender.record_commit(operation.ref, position, now, dup=False, durability="hot")

    def _apply_snapshot(self, frame: Fields, now: float) -> None:
        """Replace the cursor and the chat list with a snapshot: frame `too_long` or `reset`."""
        cursor = msgspec.convert(frame["cursor"], Cursor)
        is_new = frame["type"] == "reset" or (
            self.cursor is not None and cursor.epoch != self.cursor.epoch
        )
        self.cursor = cursor
        self._sync.is_behind = False
        self._is_reset_pending = False
        if frame.get("id") is not None:
            self._requests.remove(frame["id"])
            self._sync.is_syncing = False
        listed = {summary["chat"]: summary.get("top", 0) for summary in frame["chats"]}
        for name, seq in self._started_by_welcome.items():
            if name in self.chats:
                self.chats[name].log.undo_start(seq)
        self._started_by_welcome.clear()
        if is_new:
            self.outbox.requeue_acked()
        for chat in self.chats.values():
            if is_new:
                chat.mark_unverified()
            elif chat.log.shown is None:  # changes were not delivered: entries may be outdated
                chat.log.mark_unverified()
        self.apply_chat_list(frame)
        restarted = tuple(c.id for c in self.chats.values() if c.needs_history)
        for head in frame.get("large", []):
            chat = self.get_or_create_chat(head["chat"])
            chat.is_large = True
            if not chat.log.is_unverified:
                chat.log.start_after(head["seq"])
        self._emit([Restarted(is_new, restarted)])
        for chat in list(self.chats.values()):
            if chat.log.shown is not None:
                chat.log.record_pushed(listed.get(chat.id, 0))
            is_listed = chat.id in listed
            if is_new:
                self.catch_up.restart(chat, is_forced=not is_listed)
            elif chat.log.shown is not None:
                self.catch_up.schedule(chat, is_forced=not is_listed)

    def _apply_large_chats(self, heads: list[Any], *, is_fresh: bool) -> None:
        """Apply `welcome.large`: the large chats, each with the seq after which events follow."""
        self._started_by_welcome.clear()
        for head in heads:
            if isinstance(head, dict):
                chat = self.get_or_create_chat(head["chat"])
                chat.is_large = True
                if self._is_reset_pending:
                    continue  # new epoch: the `reset` has the positions of the chats
                if chat.log.shown is None and not is_fresh:
                    self._started_by_welcome[chat.id] = head["seq"]
                chat.log.start_after(head["seq"])
                chat.log.record_pushed(head["seq"])
                self.catch_up.schedule(chat)

    def _apply_transition(self, chat: Chat, info: Fields) -> None:
        """Record whether a chat is large now. If so, delivery starts after chat seq `since`."""
        if "since" in info:
            chat.is_large = info.get("large", False)
            if chat.is_large and not chat.log.is_unverified:
                chat.log.start_after(info["since"])

    def _handle_large_event(self, frame: Fields, now: float) -> None:
        chat = self.get_or_create_chat(frame["chat"])
        # If the first entries are in inbox events that were missed, delivery must not start here.
        is_missing_start = chat.log.shown is None and (
            self._sync.is_behind or self._sync.is_syncing
        )
        if self._is_paused or is_missing_start:
            chat.log.record_pushed(frame.get("cs", 0))
            self.catch_up.schedule(chat)
        else:
            self._apply_event(frame, now)

    def _handle_error(self, frame: Fields, now: float) -> None:
        if not self._sender.handle_error(frame, now):
            self._requests.handle_answer(frame, now)

    def _is_left(self, name: str) -> bool:
        chat = self.chats.get(name)
        return chat is not None and chat.is_left

    def _handle_stored(self, chat: str, upto: int, now: float) -> None:
        self.outbox.record_stored(chat, upto, now)
        self._emit([StoredUpto(chat, upto)])

    def _handle_signal(self, frame: Fields, now: float) -> None:
        if frame["kind"] == COMPANION_SIGNAL:
            self.companion_responses.handle_signal(frame, now)
            return
        sender = frame.get("from") or frame.get("user") or ""
        rest = {k: v for k, v in frame.items() if k not in {"type", "kind", "from", "chat"}}
        self._emit([SignalReceived(frame["kind"], sender, frame.get("chat"), rest)])

    def _send_connection_request(self, fields: Fields, on_answer: OnAnswer, now: float) -> None:
        """Send a request that is valid on the current connection only."""
        self._requests.add(QueuedRequest(fields, on_answer, now + ANSWER_S, is_retried=False))

    def _emit(self, events: Iterable[Event]) -> None:
        before = self._before or self.cursor
        self._events.extend(QueuedEvent(event, before) for event in events)
