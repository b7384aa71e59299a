"""A model of a correct chat server with membership changes.

It has no processes, sockets or clock. A list of choices drives it, so that a property test can
search for a valid history that the checker wrongly refuses. Second devices use the protocol
directly, so their inbox positions are recorded.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.support.history.events import (
    ENTRY_OF,
    Delivered,
    Final,
    History,
    Kept,
    Kind,
    Line,
    LogEntry,
    Marked,
    Notified,
    Page,
    PushesRead,
    PushSent,
    ReadMark,
    Requested,
    Responded,
    Started,
    Stored,
    Unread,
    Watermark,
)

replace = msgspec.structs.replace
CHATS = {"group": ["alice", "bob", "carol"], "duo": ["alice", "bob"]}
USERS = ("alice", "bob", "carol", "dave")
CHOICES = (
    "send",
    "send",
    "lost ack",
    "lost request",
    "reconnect",
    "refused",
    "edit",
    "delete",
    "hide",
    "react",
    "change membership",
    "update",
    "push",
    "push",
    "page",
)


class ValidHistoryModel:
    """Applies choices to a correct server and records what every device observes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._t = 0.0
        self._count = 0
        devices = {user: [f"{user}-0", f"{user}-1"] for user in USERS}
        self.history = History({chat: list(users) for chat, users in CHATS.items()}, devices)
        self.logs: dict[str, list[LogEntry]] = {chat: [] for chat in CHATS}
        self.now: dict[str, dict[int, LogEntry]] = {
            chat: {} for chat in CHATS
        }  # with all changes applied
        self.members = {chat: list(users) for chat, users in CHATS.items()}
        self.since = {(chat, user): 1 for chat, users in CHATS.items() for user in users}
        self.earlier: dict[tuple[str, str], list[range]] = collections.defaultdict(list)
        self.hidden: set[tuple[str, str, int]] = set()
        self.inboxes: dict[tuple[str, str], list[tuple[str, LogEntry]]] = {
            (user, device): [] for user, names in devices.items() for device in names
        }
        self.positions = {f"{user}-1": 0 for user in USERS}  # in the inbox
        self.conns = {user: number for number, user in enumerate(USERS, start=1)}
        self.pending: dict[str, list[tuple[Requested, LogEntry | None]]] = {u: [] for u in USERS}
        for user in USERS:
            started = Started(self._next_time(), user, f"{user}-1", "e1", 0)
            self.history.events.append(started)

    def _next_time(self) -> float:
        self._t += 0.001
        return self._t

    def play(self, choice: str) -> None:
        """Apply one choice."""
        chat = self._random.choice(list(CHATS))
        user = self._random.choice(self.members[chat])
        match choice:
            case "send" | "lost ack":
                body = f"text {self._count}"
                self._perform(user, chat, "send", body=body, is_lost=choice != "send")
            case "lost request":
                asked = self._request(user, chat, "send", body=f"text {self._count}")
                self.pending[user].append((asked, None))
            case "reconnect":
                self._reconnect(user)
            case "refused":
                asked = self._request(user, chat, "edit", body="not mine", target=1)
                self._respond(asked, code="forbidden")
            case "edit":
                self._change(user, chat, "edit", f"better {self._count}", is_own=True)
            case "delete":
                self._change(user, chat, "delete", "", is_own=True)
            case "react":
                self._change(user, chat, "react", self._random.choice(["+", ""]), is_own=False)
            case "hide":
                self._hide(user, chat)
            case "change membership":
                self._change_membership()
            case "update":
                self._perform("alice", "group", "update", body=f"name {self._count}")
            case "push":
                self._push(*self._random.choice(list(self.inboxes)))
            case _:
                self._read_page(user, chat)

    def _request(self, user: str, chat: str, kind: Kind, **more: object) -> Requested:
        self._count += 1
        fields = (self._next_time(), user, chat, f"r{self._count}", kind)
        asked = Requested(*fields, conn=self.conns[user], **more)  # type: ignore[arg-type]
        self.history.events.append(asked)
        return asked

    def _reconnect(self, user: str) -> None:
        """Reconnect a user, who repeats the unanswered sends in order."""
        self.conns[user] += len(USERS)
        pending, self.pending[user] = self.pending[user], []
        for old, entry in pending:
            if user in self.members[old.chat]:
                again = replace(old, t=self._next_time(), conn=self.conns[user])
                self.history.events.append(again)
                self._respond(again, entry or self._commit(again), dup=entry is not None)

    def _respond(
        self, asked: Requested, entry: LogEntry | None = None, code: str = "", *, dup: bool = False
    ) -> None:
        place = (0, 0, "") if entry is None else (entry.seq, entry.ts, entry.mid)
        names = (asked.user, asked.chat, asked.ref, code)
        where = (f"{asked.user}-0", asked.conn, dup)
        self.history.events.append(Responded(self._next_time(), *names, *place, *where))

    def _perform(
        self, user: str, chat: str, kind: Kind, *, is_lost: bool = False, **more: object
    ) -> Requested:
        asked = self._request(user, chat, kind, **more)
        entry = self._commit(asked)
        if is_lost:
            self.pending[user].append((asked, entry))
        else:
            has_place = kind in {"send", "edit", "delete", "react"}
            self._respond(asked, entry if has_place else None)
        return asked

    def _commit(self, asked: Requested) -> LogEntry:
        user, chat, kind = asked.user, asked.chat, asked.kind
        seq = len(self.logs[chat]) + 1
        text = asked.body if kind in {"send", "edit", "react"} else ""
        role = {"invite": "member", "join": "member", "leave": "", "remove": ""}.get(kind)
        subject = None if role is None else asked.subject or user
        entry = LogEntry(
            seq, 1_000 + 10 * seq, f"m-{chat}-{seq}", user, asked.ref, ENTRY_OF[kind], text,
            asked.target or None, subject, role,
        )  # fmt: skip
        if role and subject:
            self.members[chat].append(subject)
            self.since[chat, subject] = seq
        self.logs[chat].append(entry)
        self._apply(chat, entry)
        for member in self.members[chat]:
            for device in self.history.devices[member]:
                self.inboxes[member, device].append((chat, entry))
        if role == "" and subject:
            self.members[chat].remove(subject)
            self.earlier[chat, subject].append(range(self.since[chat, subject], seq + 1))
        return entry

    def _apply(self, chat: str, entry: LogEntry) -> None:
        now = self.now[chat]
        now[entry.seq] = entry
        target = now.get(entry.target or 0)
        if target is None or target.deleted:
            return
        reactions = {u: e for u, e in target.reactions.items() if u != entry.sender}
        match entry.kind:
            case "edit":
                now[target.seq] = replace(target, body=entry.body)
            case "delete":
                deleted = replace(target, body="", deleted=True, reactions={})
                now[target.seq] = deleted
            case "reaction":
                if entry.body:
                    reactions[entry.sender] = entry.body
                now[target.seq] = replace(target, reactions=reactions)

    def _change(self, user: str, chat: str, kind: Kind, body: str, *, is_own: bool) -> None:
        target = self._target(user, chat, is_own=is_own)
        if target is not None:
            self._perform(user, chat, kind, body=body, target=target)

    def _target(self, user: str, chat: str, *, is_own: bool) -> int | None:
        found = [
            entry.seq
            for entry in self.now[chat].values()
            if entry.kind == "text"
            and not entry.deleted
            and entry.seq >= self.since[chat, user]
            and (not is_own or entry.sender == user)
        ]
        return self._random.choice(found) if found else None

    def _hide(self, user: str, chat: str) -> None:
        target = self._target(user, chat, is_own=False)
        if target is not None:
            self._respond(self._request(user, chat, "hide", target=target))
            self.hidden.add((user, chat, target))

    def _change_membership(self) -> None:
        user = self._random.choice(USERS[1:])
        is_own = self._random.random() < 0.5
        actor = user if is_own else "alice"
        subject = "" if is_own else user
        if user in self.members["group"]:
            self._perform(actor, "group", "leave" if is_own else "remove", subject=subject)
        else:
            self._perform(actor, "group", "join" if is_own else "invite", subject=subject)

    def _push(self, user: str, device: str) -> bool:
        inbox = self.inboxes[user, device]
        if not inbox:
            return False
        chat, entry = inbox.pop(0)
        add, names = self.history.events.append, (user, device, chat)
        head = len(self.logs[chat])
        place: dict[str, Any] = {"event": 0, "epoch": ""}
        for event in (Delivered(0, *names, entry), Notified(0, *names, "a mark")):
            if device in self.positions:
                self.positions[device] += 1
                place = {"event": self.positions[device], "epoch": "e1"}
            add(replace(event, t=self._next_time(), **place))
        add(Marked(self._next_time(), *names, "alice", head, head))
        return True

    def _seen(self, user: str, chat: str, *, is_whole: bool = False) -> Iterator[LogEntry]:
        """Yield the entries since a member's last join; with `is_whole`, all that they may read."""
        since, earlier = self.since[chat, user], self.earlier[chat, user] if is_whole else []
        for entry in self.logs[chat]:
            if entry.seq < since and not any(entry.seq in period for period in earlier):
                continue
            shown = self.now[chat][entry.seq]
            if (user, chat, entry.seq) in self.hidden:
                shown = replace(shown, body="", deleted=True, reactions={})
            yield shown

    def _read_page(self, user: str, chat: str) -> None:
        seen, asked = tuple(self._seen(user, chat)), self._next_time()
        page = Page(self._next_time(), user, chat, seen[-5:])
        if chat == "duo":  # its members read everything
            position = self._random.randint(0, len(seen) + 1)
            match self._random.choice(["newest", "before", "after"]):
                case "newest":
                    page = replace(page, asked=asked, has_more=len(seen) > 5)
                case "before":
                    older = seen[: max(0, position - 1)]
                    more = len(older) > 5
                    page = replace(
                        page, asked=asked, before=position, entries=older[-5:], has_more=more
                    )
                case _:
                    newer = seen[position:]
                    more = len(newer) > 5
                    page = replace(
                        page, asked=asked, after=position, entries=newer[:5], has_more=more
                    )
        self.history.events.append(page)

    def finish(self) -> History:
        """Deliver everything, read everything and return the history."""
        for user in USERS:
            self._reconnect(user)
        self._perform("alice", "duo", "send", body="the end")
        for user, device in self.inboxes:
            while self._push(user, device):
                pass
        add = self.history.events.append
        for chat, log in self.logs.items():
            add(Stored(chat, tuple(self.now[chat][entry.seq] for entry in log)))
            for user in self.members[chat]:
                seen = tuple(self._seen(user, chat))
                add(Final(user, chat, tuple(self._seen(user, chat, is_whole=True))))
                for device in self.history.devices[user]:
                    add(Kept(user, device, chat, tuple(e for e in seen if e.kind == "text")))
                    unread = sum(
                        e.kind == "text" and not e.deleted and e.sender != user for e in seen
                    )
                    add(Unread(user, device, chat, 0, unread, len(log)))
                    add(Line(user, device, chat, len(log), 0))
                    add(Watermark(self._next_time(), user, device, chat, len(log)))
                add(ReadMark(self._next_time(), self._next_time(), user, chat, len(log) // 2))
                add(
                    ReadMark(
                        self._next_time(), self._next_time(), user, chat, len(log), is_final=True
                    )
                )
        newest = self.logs["duo"][-1]
        add(PushSent(self._next_time(), "bob", "duo", newest.seq, newest.ts))
        add(PushesRead("bob", ("group",)))
        return self.history


def make_history(seed: int, choices: list[str]) -> History:
    """Return a valid history of these choices; `seed` selects users and chats."""
    history = ValidHistoryModel(seed)
    for choice in choices:
        history.play(choice)
    return history.finish()
