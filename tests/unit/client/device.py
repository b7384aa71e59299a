"""A device under test: the client state, the frames that it receives and sends, and its events."""

from __future__ import annotations

from typing import Any

from chatserver.client import events
from chatserver.client.chat import Chat
from chatserver.client.client_state import ClientState
from chatserver.client.model import Bounds
from chatserver.client.outbox import OutboxEntry

Fields = dict[str, Any]


class Device:
    """A connected device: `receive` handles server frames, `sent` returns its own frames."""

    def __init__(self, large: tuple[Fields, ...] = (), **bounds: int) -> None:
        self.state = ClientState("phone", Bounds(**bounds))
        self.now = 100.0
        self.events: list[events.Event] = []
        self.welcome(large=list(large))

    @property
    def chat(self) -> Chat:
        """The chat that most tests use."""
        return self.state.chats["c1"]

    def welcome(self, epoch: str = "e1", seq: int = 0, **fields: Any) -> None:
        """Open a connection; an open one must have ended."""
        frame = {"user": "alice", "epoch": epoch, "seq": seq, **fields}
        self.connection = self.state.handle_welcome(frame, self.now)

    def disconnect(self) -> None:
        self.state.handle_disconnect(self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.state.tick(self.now)

    def enqueue(self, type_: str = "send", ref: str = "r", chat: str = "c1", **more: Any) -> Fields:
        """Start an operation; return its frame."""
        fields = {"type": type_, "chat": chat, "ref": ref, **(more or {"body": "hello"})}
        self.state.enqueue(OutboxEntry(ref, chat, fields), self.now)
        (frame,) = self.sent(type_)
        return frame

    def ack(self, request: Fields, seq: int) -> None:
        """Handle the ack of an operation that is not stored yet."""
        place = {"ref": request["ref"], "seq": seq, "ts": seq, "mid": f"m{seq}"}
        self.receive(type="ack", id=request["id"], **place, dup=False, durability="hot")

    def answer(self, *seqs: int, more: bool = False) -> Fields:
        """Answer the only request for history; return the request."""
        (request,) = self.sent("history")
        self.receive(**page(request, *seqs, more=more))
        return request

    def refuse(self, kind: str, code: str, *, temporary: bool = False) -> None:
        """Refuse the only request of a type."""
        (request,) = self.sent(kind)
        self.receive(**failure(request, code, temporary=temporary))

    def add(self, *seqs: int) -> None:
        """Handle messages whose inbox seqs are those of the chat."""
        for seq in seqs:
            self.event(seq, seq)

    def receive_other(self, seq: int, kind: str, **fields: Any) -> None:
        """Handle an event that is not an entry."""
        self.receive(type="event", epoch="e1", seq=seq, kind=kind, chat="c1", **fields)

    def receive(self, **frame: Any) -> None:
        self.state.handle_frame(self.connection, frame, self.now)
        self.events += self.state.pop_events()

    def event(self, seq: int, cs: int, chat: str = "c1", **fields: Any) -> None:
        """Handle an entry as an event."""
        position = {"epoch": "e1", "seq": seq, "cs": cs, "chat": chat, "kind": "message"}
        self.receive(type="event", message=entry(cs, chat, **fields), **position)

    def sent(self, kind: str) -> list[Fields]:
        """Return the frames of a type that the device sends now."""
        return [frame for frame in self.state.pop_frames() if frame["type"] == kind]

    def events_of(self, kind: type[events.Event]) -> list[Any]:
        """Return the events of a type so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def bodies(self) -> list[str]:
        """Return the bodies of the messages reported so far."""
        return [event.message.body for event in self.events_of(events.MessageAdded)]


def entry(seq: int, chat: str = "c1", **fields: Any) -> Fields:
    names = {"chat": chat, "mid": f"m{seq}", "sender": "bob", "ref": f"r{seq}"}
    return {"seq": seq, "ts": seq, **names, "kind": "text", "body": f"text {seq}", **fields}


def page(request: Fields, *seqs: int, more: bool = False) -> Fields:
    found = [entry(seq, request["chat"]) for seq in seqs]
    names = {"type": "page", "id": request["id"], "chat": request["chat"], "tier": "hot"}
    return {**names, "messages": found, "more": more}


def failure(request: Fields, code: str, *, temporary: bool) -> Fields:
    names = {"type": "error", "id": request["id"], "code": code, "message": code}
    return {**names, "temporary": temporary}
