"""A device as a pure state machine: frames, commands and time in; frames, events and answers out.

No I/O, no clock, no randomness: `now` comes with each input, in seconds of any rising clock. The
shell (`chatserver.client.client`) owns the socket and carries both ways.

Holds the cursor, the chats heard of, the outbox and the open requests. Invariants:

* the cursor moves by one event at a time within an epoch, or to that of a snapshot;
* frames of a connection that is over change nothing, so their order across connections is no
  matter: what they told comes again;
* what a place of a chat holds is told once (`chatserver.client.chatlog`), a ref is acked once
  (`chatserver.client.outbox`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from chatserver.client.catchup import CatchUp
from chatserver.client.chat import Chat
from chatserver.client.events import (
    Acked,
    ChatChanged,
    Connected,
    Event,
    Refused,
    Restarted,
    Signalled,
    StoredUpto,
)
from chatserver.client.model import Bounds, parse_entry
from chatserver.client.outbox import Deed, Outbox
from chatserver.client.requests import Fields, Request, Requests, check_text, error_of
from chatserver.client.spoken import KIND as SPOKEN
from chatserver.client.spoken import SpokenAnswers
from chatserver.domain.companions import is_session_chat
from chatserver.errors import ChatError, Overloaded
from chatserver.protocol.frames import LARGE_MAX, PROTOCOL_VERSION, UNSTORED_MAX, WATCH_MAX, Cursor

ANSWER_S = 10.0
RETRY_S = 1.0
QUESTION_WAITS_S = 60.0
PROBES_MAX = 4  # asked at a time: each may wait seconds for the warm tier
SYNC_PAGE = 200

Answer = Fields | ChatError


class Told(NamedTuple):
    """An event for the application, and the cursor before it: from there it comes again."""

    event: Event
    before: Cursor | None
    is_known: bool = False  # a call has returned it


class ClientState:
    """What one device of a user knows."""

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
        self._requests = Requests(self.bounds.requests_max)
        self.catch_up = CatchUp(self._ask_here, self._emit, self.bounds.fill_max)
        self.spoken = SpokenAnswers(self._ask_here, self._emit)
        self._offers: dict[int, str] = {}  # number of a deed's frame → ref
        self._probes: set[int] = set()
        self._named_unstored: dict[str, int] = {}  # in the last hello
        self._begun: dict[str, int] = {}  # chats of which the last welcome told first, and where
        self._watched: dict[str, None] = {}
        self._is_reset_coming = False  # then what is acked has to be offered first
        self._is_paused = False
        self._is_behind = False  # events are known to exist that we were not sent
        self._is_syncing = False
        self._sync_not_before = 0.0
        self._frames: list[Fields] = []
        self._events: list[Told] = []
        self._before: Cursor | None = None  # the cursor before the event that is being applied
        self._answers: list[tuple[int, Answer]] = []

    # ── out ─────────────────────────────────────────────────────────────────────────────────────

    def take_frames(self) -> list[Fields]:
        """Return the frames to send on the present connection, in order."""
        frames, self._frames = self._frames, []
        return frames

    def take_told(self) -> list[Told]:
        """Return what the application is to be told, and from where it can be told again."""
        told, self._events = self._events, []
        return told

    def take_events(self) -> list[Event]:
        """Return what the application is to be told."""
        return [told.event for told in self.take_told()]

    def take_answers(self) -> list[tuple[int, Answer]]:
        """Return the answers to what was asked, by number."""
        answers, self._answers = self._answers, []
        return answers

    def due(self, now: float) -> float | None:
        """Return when `tick` is wanted next, all else unchanged."""
        times = self._requests.times()
        if self.is_online:
            times += self.outbox.times()
            if not self._is_paused:
                times += [*self.catch_up.times(), self._sync_not_before]
        return min((time for time in times if time > now), default=None)

    # ── the connection ──────────────────────────────────────────────────────────────────────────

    def hello(self, token: str, state: str = "fg") -> Fields:
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
            # Of one that is still to be compared it is not known what we have, in this epoch.
            known = [c for c in self.chats.values() if c.is_large and not c.log.is_suspect]
            # Chats beyond the limit start at their newest entry; the rest is read from history.
            large = {chat.id: chat.log.shown or 0 for chat in known[:LARGE_MAX]}
            if large:
                fields["large"] = large
            self._named_unstored = self.outbox.unstored(UNSTORED_MAX)
            if self._named_unstored:
                fields["unstored"] = self._named_unstored
        return fields

    def connected(self, welcome: Fields, now: float) -> int:
        """Take the answer to `hello`; return the number by which frames of it are told."""
        self.user = welcome["user"]
        self.limits = welcome.get("limits", {})
        self.is_online = True
        self._connection += 1
        self._is_behind = False
        is_fresh = self.cursor is None
        if self.cursor is None:
            self.cursor = Cursor(welcome["epoch"], welcome["seq"])
        self._is_reset_coming = self.cursor.epoch != welcome["epoch"]
        if not self._is_reset_coming:
            self.outbox.will_be_told(self._named_unstored, now)
        self._named_unstored = {}
        self._emit([Connected(self.user)])
        users = list(self._watched)
        for start in range(0, len(users), WATCH_MAX):
            self._frames.append({"type": "watch", "users": users[start : start + WATCH_MAX]})
        self._take_large(welcome.get("large", []), is_fresh=is_fresh)
        self.spoken.reconnected(now)
        self.tick(now)
        return self._connection

    def disconnected(self, now: float) -> None:
        """The connection is over."""
        self.is_online = False
        self._is_syncing = False
        self._frames.clear()
        self._offers.clear()
        self._probes.clear()
        self.outbox.disconnected()
        self._requests.disconnected()
        self.catch_up.disconnected()
        self.tick(now)

    def received(self, connection: int, frame: Fields, now: float) -> None:
        """Take a frame of the server."""
        if connection != self._connection or not self.is_online:
            return
        match frame["type"]:
            case "event":
                self._take_event(frame, now)
            case "ack":
                self._take_ack(frame, now)
            case "error":
                self._take_error(frame, now)
            case "stored":
                self._take_stored(frame["chat"], frame["upto"], now)
            case "signal":
                self._take_signal(frame, now)
            case "too_long" | "reset":
                self._take_snapshot(frame, now)
            case "ok" | "page" | "turn":
                self._requests.answered(frame, now)
            case _:
                pass  # of a newer server
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._requests.expire(now)
        if not self.is_online:
            return
        if not self._is_reset_coming:
            self._offer(now)
        if not self._is_paused:
            self._sync_if_behind(now)
            self.catch_up.step(now)
        self._frames += self._requests.next_frames(now)

    # ── the application ─────────────────────────────────────────────────────────────────────────

    def do(self, deed: Deed, now: float) -> None:
        """Have a deed done: `Acked` or `Refused` tells what became of it.

        Raises:
            BadRequest: a text has half a character.
            Conflict: its `ref` stands for another.
            Overloaded: the outbox is full.
        """
        check_text(deed.fields)
        self.outbox.put(deed)
        self.tick(now)

    def ask(self, fields: Fields, now: float, deadline: float) -> int:
        """Ask the server; the answer comes out under the number returned.

        Raises:
            BadRequest: a text has half a character.
            Overloaded: too many questions are open.
        """
        check_text(fields)

        def answered(answer: Answer, when: float) -> None:
            self._answers.append((request.id, answer))

        request = Request(fields, answered, answered, deadline, is_kept=True)
        self._requests.add(request)
        self.tick(now)
        return request.id

    def give_up(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        self._requests.forget(number)

    def tell(self, fields: Fields) -> None:
        """Send something that is not answered; without a connection it is lost."""
        check_text(fields)
        if self.is_online:
            self._frames.append(fields)

    def watch(self, users: list[str]) -> None:
        """Hear of the presence of users, on later connections, too.

        Raises:
            Overloaded: that would be too many.
        """
        if len(self._watched.keys() | set(users)) > self.bounds.watched_max:
            raise Overloaded(f"at most {self.bounds.watched_max} users can be watched")
        self._watched.update(dict.fromkeys(users))
        self.tell({"type": "watch", "users": users})

    def unwatch(self, users: list[str]) -> None:
        """Hear of them no more."""
        for user in users:
            self._watched.pop(user, None)
        self.tell({"type": "unwatch", "users": users})

    def tell_again(self, events: Iterable[Event]) -> None:
        """Tell what another process of the device was told and its application never took."""
        self._emit(events)

    def pause(self, now: float, *, is_paused: bool) -> None:
        """Leave events with the server while the application takes none; answers still come."""
        self._is_paused = is_paused
        self.tick(now)

    def take_chats(self, page: Fields) -> None:
        """Take a page of the chat list."""
        for summary in page["chats"]:
            chat = self.chat(summary["chat"])
            chat.is_left = False
            self._emit(chat.take_summary(summary))

    def take_history(self, page: Fields, *, is_newest: bool, before: int | None = None) -> None:
        """Take a page of history that the application asked for."""
        chat = self.chat(page["chat"])
        entries = [parse_entry(fields) for fields in page["messages"]]
        self._emit(chat.take_page(entries, is_newest=is_newest, before=before))
        self.catch_up.want(chat)

    def take_info(self, info: Fields) -> None:
        """Take what a chat is, from an answer."""
        self.chat(info["chat"]).take_info(info)

    def chat(self, name: str) -> Chat:
        """Return a chat, known or new. At the bound the longest silent one is forgotten."""
        chat = self.chats.pop(name, None)
        if chat is None:  # heard of for the first time
            if len(self.chats) >= self.bounds.chats_max:
                silent = self.chats.pop(next(iter(self.chats)))
                self.catch_up.forget(silent)
            chat = Chat(name, self.user, self.bounds)
        self.chats[name] = chat  # the last in the order: it is the one heard of just now
        return chat

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _take_event(self, frame: Fields, now: float) -> None:
        if frame["seq"] == 0:
            self._take_large_event(frame, now)
            return
        cursor = self.cursor
        assert cursor is not None
        place = Cursor(frame["epoch"], frame["seq"])
        if place.epoch == cursor.epoch and place.seq <= cursor.seq:
            return
        if self._is_paused or place != Cursor(cursor.epoch, cursor.seq + 1):
            self._is_behind = True
            return
        self._before, self.cursor = cursor, place
        self._apply(frame, now)
        self._before = None

    def _apply(self, frame: Fields, now: float) -> None:
        chat = self.chat(frame["chat"])
        if "message" in frame:
            self._take_entry(chat, frame["message"], now)
        elif "read" in frame:
            self._emit(chat.take_marks(frame["read"]))
        elif "hidden" in frame:
            self._emit(chat.hide(frame["hidden"]))
        elif "info" in frame:
            chat.take_info(frame["info"])
            self._take_turn(chat, frame["info"])
            self._emit([ChatChanged(chat.id)])

    def _take_entry(self, chat: Chat, fields: Fields, now: float) -> None:
        entry = parse_entry(fields)
        chat.is_left = entry.kind == "member" and entry.user == self.user and not entry.role
        if chat.is_left:
            chat.is_large = False
            self.outbox.ask_soon(chat.id, now)
        self._emit(chat.take_entry(entry))
        self.catch_up.want(chat)
        deed = self.outbox.find(entry.ref) if entry.sender == self.user else None
        if deed is not None and deed.chat == chat.id and not deed.is_stored_wanted:
            place = (entry.seq, entry.ts, entry.mid)
            self._settle(deed.ref, place, now, dup=False, durability="hot")

    def _sync_if_behind(self, now: float) -> None:
        if not self._is_behind or self._is_syncing or self._sync_not_before > now:
            return
        assert self.cursor is not None
        asked = self.cursor
        self._is_syncing = True
        self._is_behind = False  # what comes from here on and cannot be taken says so again

        def take(page: Fields, when: float) -> None:
            self._is_syncing = False
            for event in page["events"]:
                self._take_event(event, when)
            self._is_behind = self._is_behind or page["more"]
            if self.cursor == asked:
                self._sync_not_before = when + RETRY_S

        def failed(error: ChatError, when: float) -> None:
            self._is_syncing = False
            self._is_behind = True
            self._sync_not_before = when + max(RETRY_S, (error.retry_after_ms or 0) / 1000)

        fields = {"type": "sync", "cursor": msgspec.to_builtins(asked), "limit": SYNC_PAGE}
        self._ask_here(fields, take, failed, now)

    def _take_snapshot(self, frame: Fields, now: float) -> None:
        """Start again from what the server says: `too_long`, or `reset` after a loss."""
        cursor = msgspec.convert(frame["cursor"], Cursor)
        is_new = frame["type"] == "reset" or (
            self.cursor is not None and cursor.epoch != self.cursor.epoch
        )
        self.cursor = cursor
        self._is_behind = False
        self._is_reset_coming = False
        if frame.get("id") is not None:
            self._requests.forget(frame["id"])
            self._is_syncing = False
        listed = {summary["chat"]: summary.get("top", 0) for summary in frame["chats"]}
        for name, seq in self._begun.items():
            if name in self.chats:
                self.chats[name].log.end(seq)
        self._begun.clear()
        if is_new:
            self.outbox.new_epoch()
            for chat in self.chats.values():
                chat.suspect()
        self.take_chats(frame)
        restarted = tuple(c.id for c in self.chats.values() if c.needs_history)
        for head in frame.get("large", []):
            chat = self.chat(head["chat"])
            chat.is_large = True
            if not chat.log.is_suspect:
                chat.log.begin(head["seq"])
        self._emit([Restarted(is_new, restarted)])
        for chat in list(self.chats.values()):
            if chat.log.shown is not None:
                chat.log.pass_by(listed.get(chat.id, 0))
            if is_new:
                self.catch_up.restart(chat)
            elif chat.log.shown is not None:
                self.catch_up.want(chat, is_forced=chat.id not in listed)

    # ── large chats: no inbox events, the place in the chat is the cursor ───────────────────────

    def _take_large(self, heads: list[Any], *, is_fresh: bool) -> None:
        """Take `welcome.large`: each large chat, and the place after which its events begin."""
        self._begun.clear()
        for head in heads:
            if isinstance(head, dict):
                chat = self.chat(head["chat"])
                chat.is_large = True
                if self._is_reset_coming:
                    continue  # into another epoch, of which the snapshot says where chats stand
                if chat.log.shown is None and not is_fresh:
                    self._begun[chat.id] = head["seq"]
                chat.log.begin(head["seq"])
                chat.log.pass_by(head["seq"])
                self.catch_up.want(chat)

    def _take_turn(self, chat: Chat, info: Fields) -> None:
        """The chat has become large for us above a place, or ceased to be; else nothing."""
        if "since" in info:
            chat.is_large = info.get("large", False)
            if chat.is_large and not chat.log.is_suspect:
                chat.log.begin(info["since"])

    def _take_large_event(self, frame: Fields, now: float) -> None:
        chat = self.chat(frame["chat"])
        if self._is_paused:
            chat.log.pass_by(frame.get("cs", 0))
            self.catch_up.want(chat)
        else:
            self._apply(frame, now)

    # ── the outbox ──────────────────────────────────────────────────────────────────────────────

    def _offer(self, now: float) -> None:
        room = self.limits.get("sends_in_flight_max", 64) - len(self._probes)
        for deed in self.outbox.next_offers(now, room):
            self._frames.append({**deed.fields, "id": self._number(deed.ref)})
        while len(self._probes) < PROBES_MAX:
            probe = self.outbox.next_probe(now)
            if probe is None:
                break
            number = self._number(probe.ref)
            self._probes.add(number)
            self._frames.append({**probe.fields, "id": number})

    def _number(self, ref: str) -> int:
        number = self._requests.next_id()
        self._offers[number] = ref
        return number

    def _take_ack(self, frame: Fields, now: float) -> None:
        self._offers.pop(frame["id"], None)
        self._probes.discard(frame["id"])
        durability = frame["durability"]
        place = (frame["seq"], frame["ts"], frame["mid"])
        self._settle(frame["ref"], place, now, dup=frame["dup"], durability=durability)

    def _settle(
        self, ref: str, place: tuple[int, int, str], now: float, *, dup: bool, durability: str
    ) -> None:
        deed = self.outbox.acked(ref, place, now, is_stored=durability == "stored")
        if deed is not None:
            self._emit([Acked(ref, deed.chat, *place, dup, durability)])

    def _take_error(self, frame: Fields, now: float) -> None:
        number = frame.get("id", -1)
        ref = self._offers.pop(number, None)
        if ref is None:
            self._requests.answered(frame, now)
            return
        error = error_of(frame)
        deed = self.outbox.find(ref)
        if number in self._probes:
            self._probes.discard(number)
            if deed is not None and not error.temporary:
                self._end_probe(deed, error)
        elif error.temporary and not _is_too_late(deed, error):
            self.outbox.put_off(ref, now + (error.retry_after_ms or RETRY_S * 1000) / 1000)
        elif deed is not None:
            self.outbox.drop(ref)
            self._emit([Refused(ref, deed.chat, error)])

    def _end_probe(self, deed: Deed, error: ChatError) -> None:
        """Take that the server no longer says whether a deed is stored."""
        chat = self.chats.get(deed.chat)
        if chat is None or not chat.is_left:
            self.outbox.ask_no_more(deed.ref)  # a new epoch offers it again
            return
        for ended in self.outbox.list_acked(deed.chat):
            self.outbox.drop(ended.ref)
            self._emit([Refused(ended.ref, ended.chat, error)])

    def _take_stored(self, chat: str, upto: int, now: float) -> None:
        self.outbox.stored(chat, upto, now)
        self._emit([StoredUpto(chat, upto)])

    # ── the rest ────────────────────────────────────────────────────────────────────────────────

    def _take_signal(self, frame: Fields, now: float) -> None:
        if frame["kind"] == SPOKEN:
            self.spoken.signalled(frame, now)
            return
        sender = frame.get("from") or frame.get("user") or ""
        rest = {k: v for k, v in frame.items() if k not in {"type", "kind", "from", "chat"}}
        self._emit([Signalled(frame["kind"], sender, frame.get("chat"), rest)])

    def _ask_here(self, fields: Fields, on_answer: Any, on_error: Any, now: float) -> None:
        """Ask something that is of use on this connection only."""
        self._requests.add(Request(fields, on_answer, on_error, now + ANSWER_S, is_kept=False))

    def _emit(self, events: Iterable[Event]) -> None:
        before = self._before or self.cursor
        self._events.extend(Told(event, before) for event in events)


def _is_too_late(deed: Deed | None, error: ChatError) -> bool:
    """Tell whether a question to a companion would be asked when nobody remembers it."""
    is_question = deed is not None and is_session_chat(deed.chat)
    return is_question and (error.retry_after_ms or 0) > QUESTION_WAITS_S * 1000
