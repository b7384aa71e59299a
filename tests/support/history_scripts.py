"""Scripted histories for features outside of the server model, such as companions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from chatserver.client.outbox import OutboxEntry
from chatserver.errors import ChatError
from tests.support.histories import History, RecordedState, start
from tests.unit.client.device import entry

SESSION = "01KAJ5W3N0TBJ8QW6X1V7ZC2YD"


class Script:
    """A connected device that receives frames one by one."""

    def __init__(self, name: str, **bounds: int) -> None:
        self.state: RecordedState = start(name, **bounds)
        self.now = 100.0
        self.seq = 0
        self.connection = 0
        self.connect()

    def connect(self, **welcome: Any) -> None:
        """Connect, or connect again."""
        if self.state.is_online:
            self.state.handle_disconnect(self.now)
        self.state.build_hello("token")
        fields = {"type": "welcome", "user": "alice", "epoch": "e1", "seq": self.seq, "large": []}
        self.connection = self.state.handle_welcome({**fields, **welcome}, self.now)
        self.flush()

    def restart(self) -> None:
        """Continue in another process that has the saved messages."""
        self.state = self.state.restart(self.state.bounds, [])

    def flush(self) -> list[Any]:
        """Read all outputs; return the frames that the client sends."""
        frames = self.state.pop_frames()
        self.state.pop_queued_events()
        self.state.pop_answers()
        self.state.get_next_tick(self.now)
        return frames

    def receive(self, **frame: Any) -> list[Any]:
        """Receive a frame; return the frames that the client sends."""
        self.state.handle_frame(self.connection, frame, self.now)
        return self.flush()

    def event(self, kind: str, chat: str = "c1", **fields: Any) -> list[Any]:
        """Receive the next event of the inbox."""
        self.seq += 1
        place = {"epoch": "e1", "seq": self.seq, "kind": kind, "chat": chat}
        return self.receive(type="event", **place, **fields)

    def entry(self, cs: int, kind: str = "message", chat: str = "c1", **fields: Any) -> list[Any]:
        """Receive an entry of a chat."""
        more = {} if kind == "message" else {"kind": kind}
        return self.event(kind, chat, cs=cs, message=entry(cs, chat, **{**more, **fields}))

    def enqueue(self, kind: str, ref: str, chat: str = "c1", **fields: Any) -> list[Any]:
        """Queue an operation."""
        frame = {"type": kind, "chat": chat, "ref": ref, **fields}
        with contextlib.suppress(ChatError):  # recorded
            self.state.enqueue(OutboxEntry(ref, chat, frame), self.now)
        return self.flush()

    def wait(self, seconds: float) -> list[Any]:
        """Advance the time."""
        self.now += seconds
        self.state.tick(self.now)
        return self.flush()

    def end(self) -> History:
        """Return the history."""
        self.flush()
        self.state.describe()
        return self.state.history


def companions() -> History:
    """Parts of a response that are lost, late or from a restarted response."""
    script = Script("companion streams")

    def piece(index: int, text: str, turn: str = "t1", **more: Any) -> list[Any]:
        place = {"chat": SESSION, "from": "ai-ada", "turn": turn, "seq": 1}
        return script.receive(
            type="signal", kind="ai.delta", **place, index=index, text=text, **more
        )

    piece(0, "")
    piece(1, "Hel")
    asked = piece(3, " wor")  # part 2 is lost
    whole = {"type": "turn", "chat": SESSION, "turn": "t1", "seq": 1, "text": "Hello"}
    script.receive(**whole, index=2, id=asked[0]["id"])
    script.connect()
    piece(4, "ld", end="done")
    piece(0, "", turn="t2")
    piece(0, "", turn="t1")  # from the previous response
    piece(2, "b", turn="t2")
    script.wait(11.0)  # no response arrives
    piece(1, "a", turn="t2")
    script.receive(type="turn", chat=SESSION, turn="", seq=0, index=0, text="", id=99)
    return script.end()


def members() -> History:
    """Members, roles, mutes, settings, pins, and the removal of the user."""
    script = Script("members and settings", marks_max=3)
    info = {"chat": "c1", "kind": "group", "members": ["alice", "bob"], "slow_s": 5}
    more = {"roles": {"bob": "owner"}, "muted": {"bob": 0}, "name": "Trip"}
    script.event("chat", info={**info, **more})
    script.entry(1, "member", user="bob", role="member", body="", muted_until=1)
    script.entry(2, "member", user="carol", role="admin", body="", muted_until=2_000)
    script.entry(3, "update", body='{"slow_s":0,"retention_s":60}', name="Sea")
    script.entry(4, "update", body="not json")
    script.entry(5)
    script.entry(6, "pin", target=5, body="")
    script.entry(7, "unpin", target=5, body="")
    for number, user in enumerate(("bob", "carol", "dave", "erin"), start=1):
        script.event("read", read={"user": user, "read": number, "received": 7})
    script.entry(8, "member", user="carol", role="", body="", banned=True)
    script.enqueue("send", "r-own", body="mine")
    script.receive(
        type="ack", id=1, ref="r-own", mid="m9", seq=9, ts=9, dup=False, durability="hot"
    )
    script.entry(10, "member", user="alice", role="", body="")
    (probe,) = [frame for frame in script.wait(6.0) if frame["type"] == "send"]
    error = {"code": "not_found", "message": "chat: not found", "temporary": False}
    script.receive(type="error", id=probe["id"], **error)
    return script.end()


def hidden() -> History:
    """Messages deleted for oneself, expiring messages, reactions, unread counts."""
    script = Script("hidden and changed messages", entries_max=6)
    for cs in range(1, 5):
        script.entry(cs, expires_at=9_000 if cs == 4 else None)
    script.event("hidden", hidden=[2])
    script.entry(5, "reaction", target=1, body="👍", sender="carol")
    script.entry(6, "reaction", target=1, body="", sender="carol")
    script.entry(7, "edit", target=3, body="new")
    script.entry(8, "delete", target=1, body="")
    script.entry(9, "edit", target=1, body="too late")
    summary = {"chat": "c1", "kind": "group", "top": 9, "read": 2, "unread": 3, "hidden": [3]}
    script.state.apply_chat_list({"chats": [{**summary, "last": entry(3)}]})
    script.flush()
    script.event("hidden", hidden=[4])
    script.event("hidden", "c2", hidden=[1])
    script.enqueue("delete", "r-hide", seq=3, **{"for": "me"})
    script.receive(type="ack", id=1, ref="r-hide", mid="", seq=3, ts=0, dup=False, durability="hot")
    (probe,) = [frame for frame in script.wait(6.0) if frame["type"] == "delete"]
    acked = {"ref": "r-hide", "mid": "", "seq": 3, "ts": 0, "dup": True, "durability": "stored"}
    script.receive(type="ack", id=probe["id"], **acked)
    script.event("hidden", hidden=[11])  # this device has not received it
    asked = script.entry(12)
    (gap,) = [frame for frame in asked if frame["type"] == "history"]
    missed = [entry(10), entry(11)]
    script.receive(type="page", chat="c1", tier="hot", more=False, id=gap["id"], messages=missed)
    return script.end()


def cleared() -> History:
    """Cleared chats: their texts do not return with events or pages, or after a reload."""
    script = Script("cleared chats")
    line = {"chat": "c1", "kind": "group", "top": 2, "unread": 2, "last": entry(2)}
    script.state.apply_chat_list({"chats": [line]})
    script.flush()
    script.entry(3, body="secret 3")
    script.entry(4)
    script.state.clear_chat("c1", 3)
    script.state.describe()
    script.state.clear_chat("c1", 2)  # an older version
    script.entry(5, "edit", target=2, body="edited")
    script.entry(6, "reaction", target=4, body="👍")
    older = [entry(1), entry(2), entry(3, body="secret 3")]
    script.state.apply_history({"chat": "c1", "messages": older}, is_newest=False, before=4)
    (gap,) = [frame for frame in script.entry(9) if frame["type"] == "history"]
    script.state.clear_chat("c1", 8)  # from another device, which has received all of them
    missed = [entry(7, body="secret 7"), entry(8)]
    script.receive(type="page", chat="c1", tier="hot", more=False, id=gap["id"], messages=missed)
    script.state.apply_chat_list({"chats": [{**line, "top": 9, "unread": 7, "last": entry(8)}]})
    script.state.describe()
    script.restart()
    script.connect()
    script.state.describe()
    script.entry(10)
    script.state.clear_chat("c1", 10)
    return script.end()


def outbox() -> History:
    """Refusals, retries in order, conflicts, a full outbox, probes, and a question of a session."""
    script = Script("outbox", outbox_max=4)
    (first,) = script.enqueue("send", "r1", body="one")
    (second,) = script.enqueue("send", "r2", body="two")
    (other,) = script.enqueue("send", "r3", chat="c2", body="other")
    script.enqueue("send", "r1", body="changed")  # conflict
    script.enqueue("send", "r1", body="one")  # the same request again
    script.enqueue("send", "r4", body="\ud83d broken")
    busy = {"type": "error", "code": "rate_limited", "message": "", "temporary": True}
    script.receive(**busy, id=first["id"], retry_after_ms=500)
    script.receive(**busy, id=second["id"])
    place = {"mid": "m1", "seq": 1, "ts": 1, "dup": False, "durability": "hot"}
    script.receive(type="ack", id=other["id"], ref="r3", **place)
    script.enqueue("send", "r5", chat=SESSION, body="question")
    script.enqueue("send", "r6", body="one too many")
    script.receive(**busy, id=4, retry_after_ms=61_000)  # this is too late for a question
    script.wait(0.6)
    script.wait(0.6)
    script.connect()
    script.wait(5.0)
    script.receive(type="stored", chat="c2", upto=1)
    error = {"type": "error", "code": "forbidden", "message": "muted", "temporary": False}
    script.receive(**error, id=script.state._requests._last_id)
    script.wait(30.0)
    return script.end()


def targets() -> History:
    """Changes name the message that the application knows, also after a loss of data."""
    script = Script("targets of changes")
    script.entry(1)
    (react,) = script.enqueue("react", "r1", seq=1, emoji="👍")
    (send,) = script.enqueue("send", "r-own", body="mine")
    place = {"mid": "m2", "seq": 2, "ts": 2, "dup": False, "durability": "hot"}
    script.receive(type="ack", id=send["id"], ref="r-own", **place)
    script.enqueue("edit", "r2", seq=2, body="changed")  # its event has not arrived yet
    script.enqueue("edit", "r3", seq=9, body="unknown")
    script.receive(type="ack", id=react["id"], ref="r1", **{**place, "seq": 3})
    lines = [{"chat": "c1", "kind": "direct", "members": ["alice", "bob"], "top": 1}]
    asked = script.receive(type="reset", cursor={"epoch": "e2", "seq": 0}, chats=lines)
    script.enqueue("delete", "r4", seq=1)  # the application has not been notified
    (page,) = [frame for frame in asked if frame["type"] == "history"]
    found = [entry(1, mid="m7", ref="r7")]
    script.receive(type="page", id=page["id"], chat="c1", tier="hot", more=False, messages=found)
    script.enqueue("react", "r1", seq=1, emoji="👍")  # the same request again
    script.enqueue("react", "r5", seq=1, emoji="👍")
    (again,) = [frame for frame in asked if frame.get("ref") == "r1"]
    error = {"code": "not_found", "message": "seq: the chat has no such message"}
    script.receive(type="error", id=again["id"], **error, temporary=False)
    return script.end()


def requests() -> History:
    """Deadlines, repeated requests, lost races, presence subscriptions."""
    script = Script("requests", requests_max=3, watched_max=120)
    script.state.watch([f"u{number}" for number in range(110)])
    with contextlib.suppress(ChatError):  # recorded
        script.state.watch([f"v{number}" for number in range(20)])
    script.state.unwatch(["u0"])
    script.flush()
    asked = script.state.send_request({"type": "chats"}, script.now, script.now + 10)
    script.state.send_request(
        {"type": "join", "chat": "c9", "ref": "j1"}, script.now, script.now + 1
    )
    late = script.state.send_request({"type": "blocks"}, script.now, script.now + 3)
    with contextlib.suppress(ChatError):  # recorded
        script.state.send_request({"type": "blocks"}, script.now, script.now + 3)
    script.flush()
    race = {"type": "error", "code": "conflict", "message": "", "temporary": True}
    script.receive(**race, id=asked + 1)
    script.state.cancel_request(late)
    script.wait(0.2)
    script.connect()  # the client requests and subscribes again
    script.state.notify({"type": "typing", "chat": "c1", "on": True})
    lines = [{"chat": "c1", "kind": "direct", "members": ["alice", "bob"], "top": 3, "unread": 1}]
    script.receive(type="page", id=asked, chats=lines, more=False)
    script.state.apply_chat_list({"chats": lines})
    script.state.apply_info({"chat": "c2", "kind": "group", "members": ["alice"]})
    script.receive(type="signal", kind="typing", chat="c1", **{"from": "bob"}, on=True)
    script.receive(type="signal", kind="presence", **{"from": "bob"}, state="offline", last_seen=7)
    script.receive(type="signal", kind="post", **{"from": "bob"}, post="p1")
    script.receive(type="something new", chat="c1")
    script.wait(1.0)
    script.state.remove_chat("c2")
    return script.end()


def gaps() -> History:
    """A membership that ended and began again, failed pages, and a gap that is too long to fill."""
    script = Script("gaps", fill_max=5)
    script.entry(1)
    asked = script.entry(5)  # 2 to 4 are missing
    found = {"type": "page", "chat": "c1", "tier": "hot", "more": False}
    script.receive(**found, id=asked[0]["id"], messages=[entry(4)])
    failed = {"type": "error", "code": "unavailable", "message": "", "temporary": True}
    asked = script.entry(8)
    for _ in range(6):
        for frame in [frame for frame in asked if frame["type"] == "history"]:
            script.receive(**failed, id=frame["id"])
        asked = script.wait(20.0)
    asked = script.entry(20)
    for frame in [frame for frame in asked if frame["type"] == "history"]:
        script.receive(type="error", id=frame["id"], code="forbidden", message="", temporary=False)
    return script.end()


SCRIPTS: tuple[Callable[[], History], ...] = (
    companions,
    members,
    hidden,
    cleared,
    outbox,
    targets,
    requests,
    gaps,
)
