"""A device under test: the client state, the frames that it receives and sends, and its events."""

from __future__ import annotations

from typing import Any

from chatserver.client import events
from chatserver.client.client_state import ClientState
from chatserver.client.model import Bounds

Fields = dict[str, Any]


class Device:
    """A connected device: `receive` handles server frames, `sent` returns its own frames."""

    def __init__(self, large: tuple[Fields, ...] = (), **bounds: int) -> None:
        self.state = ClientState("phone", Bounds(**bounds))
        self.now = 100.0
        welcome = {"user": "alice", "epoch": "e1", "seq": 0, "large": list(large)}
        self.connection = self.state.handle_welcome(welcome, self.now)
        self.events: list[events.Event] = []

    def receive(self, **frame: Any) -> None:
        """Handle a frame from the server."""
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
