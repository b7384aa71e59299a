"""A model of a server: inbox, chats and history of one user, without network or time.

It follows docs/protocol.md: events in order after a cursor, `too_long` and `reset`, pages that are
contiguous and may be short, an ack for each ref. `switch_large` makes a chat large, or small again:
messages of a large chat are not in the inbox. `rewind` simulates a data loss of Redis: a new epoch,
and each chat keeps its stored entries and perhaps some later ones.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]
ME = "alice"
PAGE = 3  # shorter than any requested page
SNAPSHOT_CHATS = 2
LARGE = "large"


class FakeServer:
    """The data in Redis and DynamoDB; `ME` can read a part of it."""

    def __init__(self, chats: tuple[str, ...]) -> None:
        self.epoch = 1
        self.logs: dict[str, list[Fields]] = {chat: [] for chat in chats}
        self.stored = dict.fromkeys(chats, 0)
        self.marks: dict[str, dict[str, int]] = {chat: {} for chat in chats}
        self.inbox: list[Fields] = []
        self.first = 1  # seq of the oldest kept event
        self.activity: dict[str, int] = dict.fromkeys(chats, 0)
        self.large = {LARGE: 0}  # chat → seq above which it is a large one
        self._large_before = dict(self.large)  # at the start of the inbox
        self._clock = 0
        self.hidden: dict[str, set[int]] = {chat: set() for chat in chats}

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    def append(self, chat: str, sender: str, ref: str, **fields: Any) -> tuple[Fields, bool]:
        """Append an entry, or find the one with the same ref; return it and whether it is new."""
        for existing in self.logs[chat]:
            if (existing["sender"], existing["ref"]) == (sender, ref):
                return existing, False
        self._clock += 1
        entry = {
            "seq": len(self.logs[chat]) + 1,
            "ts": self._clock,
            "chat": chat,
            "mid": f"m{self._clock}",
            "sender": sender,
            "ref": ref,
            **fields,
        }
        self.logs[chat].append(entry)
        self.activity[chat] = self._clock
        if "target" not in entry:
            self.marks[chat][sender] = max(self.marks[chat].get(sender, 0), entry["seq"])
        if chat not in self.large:
            self.inbox.append(make_event(entry))
        return entry, True

    def switch_large(self, chat: str) -> None:
        """Make a chat large or small, and report it in the inbox."""
        since = len(self.logs[chat])
        is_large = chat not in self.large
        if is_large:
            self.large[chat] = since
        else:
            del self.large[chat]
        info = {"chat": chat, "kind": "group", "large": is_large, "since": since}
        self.inbox.append({"type": "event", "kind": "chat", "chat": chat, "info": info})

    def large_at(self, seq: int) -> dict[str, int]:
        """Return the chats that are large at a position of the inbox."""
        large = dict(self._large_before)
        for event in self.inbox[:seq]:
            match event:
                case {"chat": chat, "info": {"large": True, "since": since}}:
                    large[chat] = since
                case {"chat": chat, "info": {"large": False}}:
                    del large[chat]
        return large

    def mark(self, chat: str, user: str, read: int) -> None:
        read = min(read, len(self.logs[chat]))
        if read > self.marks[chat].get(user, 0):
            self.marks[chat][user] = read
            marks = {"user": user, "read": read}
            self.inbox.append({"type": "event", "kind": "read", "chat": chat, "read": marks})

    def hide(self, chat: str, seq: int) -> None:
        """Delete a message for `ME` only."""
        self.hidden[chat].add(seq)
        self.inbox.append({"type": "event", "kind": "hidden", "chat": chat, "hidden": [seq]})

    def trim(self, kept: int) -> None:
        """Remove all but the last events of the inbox."""
        self.first = max(self.first, len(self.inbox) + 1 - kept)

    def store(self, chat: str) -> Fields:
        """Write a chat to the warm tier; return the watermark."""
        self.stored[chat] = len(self.logs[chat])
        return {"type": "stored", "chat": chat, "upto": self.stored[chat]}

    def rewind(self, lost_max: int) -> None:
        """Lose all inbox events and up to `lost_max` unstored entries of each chat."""
        self.epoch += 1
        self.inbox, self.first = [], 1
        for chat, log in self.logs.items():
            del log[max(self.stored[chat], len(log) - lost_max) :]
            self.marks[chat] = {u: min(read, len(log)) for u, read in self.marks[chat].items()}
            self.hidden[chat] = {seq for seq in self.hidden[chat] if seq <= len(log)}
        self.large = {chat: min(since, len(self.logs[chat])) for chat, since in self.large.items()}
        self._large_before = dict(self.large)

    # ── reads ───────────────────────────────────────────────────────────────────────────────────

    def view(self, chat: str) -> list[Fields]:
        """Return a chat's messages with all changes applied."""
        shown = [{**entry, "reactions": {}} for entry in self.logs[chat]]
        for entry in self.logs[chat]:
            if "target" not in entry or shown[entry["target"] - 1].get("deleted"):
                continue
            target = shown[entry["target"] - 1]
            target["rev"] = entry["seq"]
            match entry["kind"]:
                case "edit":
                    edited = {"edited_ts": entry["ts"], "edited_seq": entry["seq"]}
                    target |= {"body": entry["body"], **edited}
                case "delete":
                    target |= {"body": "", "deleted": True, "reactions": {}}
                    target |= {"edited_ts": 0, "edited_seq": 0}
                case "reaction" if entry["body"]:
                    target["reactions"][entry["sender"]] = entry["body"]
                case "reaction":
                    target["reactions"].pop(entry["sender"], None)
        for seq in self.hidden[chat]:
            blank = {"body": "", "deleted": True, "reactions": {}, "edited_ts": 0, "edited_seq": 0}
            shown[seq - 1] |= blank
        return shown

    def count_unread(self, chat: str) -> int:
        after = self.view(chat)[self.marks[chat].get(ME, 0) :]
        return sum("target" not in entry and not entry.get("deleted") for entry in after)

    def history(self, request: Fields) -> Fields:
        view = self.view(request["chat"])
        if "after" in request:
            page = view[request["after"] : request["after"] + PAGE]
            more = bool(page) and page[-1]["seq"] < len(view)
        else:
            before = request.get("before") or len(view) + 1
            page = view[max(0, before - 1 - PAGE) : before - 1]
            more = bool(page) and page[0]["seq"] > 1
        names = {"type": "page", "id": request["id"], "chat": request["chat"]}
        return {**names, "messages": page, "tier": "hot", "more": more}

    def summaries(self, count: int) -> list[Fields]:
        """Return entries of the chat list, newest activity first."""
        newest = sorted(self.logs, key=lambda chat: -self.activity[chat])
        return [
            {
                "chat": chat,
                "kind": "group",
                "top": len(self.logs[chat]),
                "read": self.marks[chat].get(ME, 0),
                "unread": self.count_unread(chat),
            }
            for chat in newest[:count]
        ]

    def snapshot(self, kind: str, request: int | None = None) -> Fields:
        """Return `too_long` or `reset`."""
        position = {"epoch": f"e{self.epoch}", "seq": len(self.inbox)}
        frame = {"type": kind, "cursor": position, "chats": self.summaries(SNAPSHOT_CHATS)}
        for line in frame["chats"]:
            line["hidden"] = sorted(self.hidden[line["chat"]])
        return frame if request is None else {**frame, "id": request}

    def check_cursor(self, cursor: Fields) -> str:
        """Return the state of a cursor: `current`, `too_long` or `reset`."""
        if cursor["epoch"] != f"e{self.epoch}" or cursor["seq"] > len(self.inbox):
            return "reset"
        return "too_long" if cursor["seq"] + 1 < self.first else "current"

    def events(self, after: int) -> list[Fields]:
        found = enumerate(self.inbox[after:], after + 1)
        return [{**event, "epoch": f"e{self.epoch}", "seq": seq} for seq, event in found]


def make_event(entry: Fields) -> Fields:
    """Return the event for an entry."""
    kind = entry["kind"] if "target" in entry else "message"
    names = {"type": "event", "kind": kind, "chat": entry["chat"], "cs": entry["seq"]}
    return {**names, "message": entry}


class FakeSession:
    """A connection that queues frames in both directions until a test moves them."""

    def __init__(self, server: FakeServer, hello: Fields) -> None:
        self._server = server
        self.to_client: list[Fields] = []
        self.to_server: list[Fields] = []
        self.refusals = 0
        self._epoch = server.epoch
        self._sent = len(server.inbox)
        cursor = hello.get("cursor")
        found = "current" if cursor is None else server.check_cursor(cursor)
        if cursor is not None and found == "current":
            self._sent = cursor["seq"]
        known = hello.get("large", {}) if found == "current" else {}
        # Large chat → last sent seq; None: unknown, and the chat is small again later in the inbox.
        self._positions: dict[str, int | None] = {}
        for chat, since in server.large_at(self._sent).items():
            if chat in known:
                self._positions[chat] = max(known[chat], since)
            else:
                is_on = server.large.get(chat) == since
                self._positions[chat] = len(server.logs[chat]) if is_on else None
        heads = {
            chat: position
            for chat, position in self._positions.items()
            if server.large.get(chat) == server.large_at(self._sent)[chat]
        }
        self.welcome = {
            "type": "welcome",
            "user": ME,
            "epoch": f"e{server.epoch}",
            "seq": len(server.inbox),
            "limits": {"sends_in_flight_max": 4},
            "large": [{"chat": chat, "seq": position} for chat, position in heads.items()],
        }
        if found != "current":
            self.to_client.append(server.snapshot(found))

    def push_stored(self, frame: Fields) -> None:
        """Push a `stored` position, unless the client does not know its epoch yet."""
        if self._epoch == self._server.epoch:
            self.to_client.append(frame)

    def push_pending(self) -> None:
        """Push all pending events to the client."""
        server = self._server
        if self._epoch != server.epoch or self._sent + 1 < server.first:
            kind = "reset" if self._epoch != server.epoch else "too_long"
            self._epoch, self._sent = server.epoch, len(server.inbox)
            self._positions = {chat: len(server.logs[chat]) for chat in server.large}
            large = [{"chat": chat, "seq": position} for chat, position in self._positions.items()]
            self.to_client.append({**server.snapshot(kind), "large": large})
        for event in server.events(self._sent):
            self._send(event)
        for chat in self._positions:
            self._send_large(chat, len(server.logs[chat]))

    def _send(self, event: Fields) -> None:
        """Push an inbox event; before a chat becomes small, push its remaining entries."""
        info = event.get("info", {})
        if info and not info["large"]:
            self._send_large(event["chat"], info["since"])
            self._positions.pop(event["chat"], None)
        self.to_client.append(event)
        self._sent = event["seq"]
        if info and info["large"]:
            self._positions[event["chat"]] = info["since"]

    def _send_large(self, chat: str, upto: int) -> None:
        """Push the entries of a large chat up to a seq."""
        server, position = self._server, self._positions.get(chat, 0)
        if position is None:
            cursor = {"epoch": f"e{server.epoch}", "seq": self._sent}
            lines = [line for line in server.summaries(100) if line["chat"] == chat]
            lines[0]["hidden"] = sorted(server.hidden[chat])
            self.to_client.append({"type": "too_long", "cursor": cursor, "chats": lines})
            position = upto
        for entry in server.logs[chat][position:upto]:
            if entry.get("target" if entry["kind"] == "edit" else "seq") in server.hidden[chat]:
                entry = {**entry, "body": "", "deleted": True}
            self.to_client.append({**make_event(entry), "epoch": f"e{server.epoch}", "seq": 0})
        self._positions[chat] = max(position, upto)

    def handle_next(self) -> None:
        """Handle the client's oldest frame."""
        frame = self.to_server.pop(0)
        if self.refusals > 0 and "id" in frame:
            self.refusals -= 1
            error = {"type": "error", "code": "unavailable", "message": "", "temporary": True}
            self.to_client.append({**error, "id": frame["id"], "retry_after_ms": 100})
            return
        response = self._handle(frame)
        if response is not None:
            self.push_pending()
            self.to_client.append(response)
            if response.get("dup"):
                self.push_stored(self._server.store(frame["chat"]))

    def _handle(self, frame: Fields) -> Fields | None:
        server = self._server
        match frame["type"]:
            case "send" | "edit" | "delete" | "react":
                return self._commit(frame)
            case "history":
                return server.history(frame)
            case "chats":
                lines = server.summaries(100)
                return {"type": "page", "id": frame["id"], "chats": lines, "more": False}
            case "sync":
                return self._sync(frame)
            case "mark":
                server.mark(frame["chat"], ME, frame["read"])
                return None
        raise AssertionError(frame)

    def _commit(self, frame: Fields) -> Fields:
        kind = {"send": "text", "react": "reaction"}.get(frame["type"], frame["type"])
        fields = {"kind": kind, "body": frame.get("body", frame.get("emoji", ""))}
        if frame["type"] != "send":
            log = self._server.logs[frame["chat"]]
            at = log[frame["seq"] - 1] if frame["seq"] <= len(log) else {"target": 0}
            if "target" in at or frame.get("target_ref", at["ref"]) != at["ref"]:
                error = {"type": "error", "code": "not_found", "message": "", "temporary": False}
                return {**error, "id": frame["id"]}
            fields["target"] = frame["seq"]
        entry, is_new = self._server.append(frame["chat"], ME, frame["ref"], **fields)
        durability = frame.get("durability", "hot")
        if durability == "stored":
            self._server.store(frame["chat"])
        committed = {key: entry[key] for key in ("seq", "ts", "mid", "ref")}
        names = {"type": "ack", "id": frame["id"], "dup": not is_new, "durability": durability}
        return {**names, **committed}

    def _sync(self, frame: Fields) -> Fields:
        found = self._server.check_cursor(frame["cursor"])
        if found != "current":
            return self._server.snapshot(found, frame["id"])
        events = self._server.events(frame["cursor"]["seq"])
        page = {"type": "page", "id": frame["id"], "events": events[:PAGE]}
        return {**page, "cursor": frame["cursor"], "more": len(events) > PAGE}
