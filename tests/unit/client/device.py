"""A device under test: the pure client, the frames it receives, and what it reports and sends."""

from __future__ import annotations

from typing import Any

from chatserver.client import events
from chatserver.client.model import Bounds
from chatserver.client.state import ClientState

Fields = dict[str, Any]


class Device:
    """A connected device; `take` gives it frames, `asked` returns its own."""

    def __init__(self, large: tuple[Fields, ...] = (), **bounds: int) -> None:
        self.state = ClientState("phone", Bounds(**bounds))
        self.now = 100.0
        welcome = {"user": "alice", "epoch": "e1", "seq": 0, "large": list(large)}
        self.connection = self.state.connected(welcome, self.now)
        self.heard: list[events.Event] = []

    def take(self, **frame: Any) -> None:
        """Take a frame of the server."""
        self.state.received(self.connection, frame, self.now)
        self.heard += self.state.take_events()

    def event(self, seq: int, cs: int, chat: str = "c1", **fields: Any) -> None:
        """Take an entry as an event."""
        place = {"epoch": "e1", "seq": seq, "cs": cs, "chat": chat, "kind": "message"}
        self.take(type="event", message=entry(cs, chat, **fields), **place)

    def asked(self, kind: str) -> list[Fields]:
        """Return the frames of a type that the device sends now."""
        return [frame for frame in self.state.take_frames() if frame["type"] == kind]

    def told(self, kind: type[events.Event]) -> list[Any]:
        """Return the events of a type so far."""
        return [event for event in self.heard if isinstance(event, kind)]

    def bodies(self) -> list[str]:
        """Return the bodies of the messages reported so far."""
        return [event.message.body for event in self.told(events.MessageAdded)]


def entry(seq: int, chat: str = "c1", **fields: Any) -> Fields:
    names = {"chat": chat, "mid": f"m{seq}", "sender": "bob", "ref": f"r{seq}"}
    return {"seq": seq, "ts": seq, **names, "kind": "text", "body": f"text {seq}", **fields}


def page(request: Fields, *seqs: int, more: bool = False) -> Fields:
    found = [entry(seq, request["chat"]) for seq in seqs]
    place = {"type": "page", "id": request["id"], "chat": request["chat"], "tier": "hot"}
    return {**place, "messages": found, "more": more}


def failure(request: Fields, code: str, *, temporary: bool) -> Fields:
    names = {"type": "error", "id": request["id"], "code": code, "message": code}
    return {**names, "temporary": temporary}
