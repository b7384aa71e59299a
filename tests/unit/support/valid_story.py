"""A model of a correct chat server with membership changes.

Like `valid_run`, for stories: a list of choices drives it, so that a property test can search
for a valid story that the checker wrongly refuses.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator

import msgspec

from tests.support.story import (
    ENTRY_OF,
    Answered,
    Asked,
    Delivered,
    Final,
    Kept,
    Kind,
    Line,
    Notified,
    Page,
    PushesRead,
    PushSent,
    ReadMark,
    Shown,
    Stored,
    Story,
    Unread,
    Watermark,
)

CHATS = {"group": ["alice", "bob", "carol"], "duo": ["alice", "bob"]}
USERS = ("alice", "bob", "carol", "dave")
CHOICES = (
    "send",
    "send",
    "lost ack",
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


class ValidStoryModel:
    """Applies choices to a correct server and records what every device observes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._t = 0.0
        self._count = 0
        devices = {user: [f"{user}-0", f"{user}-1"] for user in USERS}
        self.story = Story({chat: list(users) for chat, users in CHATS.items()}, devices)
        self.logs: dict[str, list[Shown]] = {chat: [] for chat in CHATS}
        self.now: dict[str, dict[int, Shown]] = {
            chat: {} for chat in CHATS
        }  # with all changes applied
        self.members = {chat: list(users) for chat, users in CHATS.items()}
        self.since = {(chat, user): 1 for chat, users in CHATS.items() for user in users}
        self.earlier: dict[tuple[str, str], list[range]] = collections.defaultdict(list)
        self.hidden: set[tuple[str, str, int]] = set()
        self.inboxes: dict[tuple[str, str], list[tuple[str, Shown]]] = {
            (user, device): [] for user, names in devices.items() for device in names
        }

    def _next_time(self) -> float:
        self._t += 0.001
        return self._t

    def play(self, choice: str) -> None:
        """Apply one choice."""
        chat = self._random.choice(list(CHATS))
        user = self._random.choice(self.members[chat])
        match choice:
            case "send" | "lost ack":
                self._perform(
                    user, chat, "send", body=f"text {self._count}", is_lost=choice != "send"
                )
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

    def _request(self, user: str, chat: str, kind: Kind, **more: object) -> Asked:
        self._count += 1
        ref = f"r{self._count}"
        asked = Asked(self._next_time(), user, chat, ref, kind, **more)  # type: ignore[arg-type]
        self.story.scenes.append(asked)
        return asked

    def _respond(self, asked: Asked, entry: Shown | None = None, code: str = "") -> None:
        place = (0, 0, "") if entry is None else (entry.seq, entry.ts, entry.mid)
        names = (asked.user, asked.chat, asked.ref, code)
        device = f"{asked.user}-0"
        self.story.scenes.append(Answered(self._next_time(), *names, *place, device))

    def _perform(
        self, user: str, chat: str, kind: Kind, *, is_lost: bool = False, **more: object
    ) -> Asked:
        asked = self._request(user, chat, kind, **more)
        seq = len(self.logs[chat]) + 1
        text = asked.body if kind in {"send", "edit", "react"} else ""
        role = {"invite": "member", "join": "member", "leave": "", "remove": ""}.get(kind)
        subject = None if role is None else asked.subject or user
        entry = Shown(
            seq, 1_000 + 10 * seq, f"m-{chat}-{seq}", user, asked.ref, ENTRY_OF[kind], text,
            asked.target or None, subject, role,
        )  # fmt: skip
        if role and subject:
            self.members[chat].append(subject)
            self.since[chat, subject] = seq
        self.logs[chat].append(entry)
        self._apply(chat, entry)
        for member in self.members[chat]:
            for device in self.story.devices[member]:
                self.inboxes[member, device].append((chat, entry))
        if role == "" and subject:
            self.members[chat].remove(subject)
            self.earlier[chat, subject].append(range(self.since[chat, subject], seq + 1))
        if not is_lost:
            has_place = kind in {"send", "edit", "delete", "react"}
            self._respond(asked, entry if has_place else None)
        return asked

    def _apply(self, chat: str, entry: Shown) -> None:
        now = self.now[chat]
        now[entry.seq] = entry
        target = now.get(entry.target or 0)
        if target is None or target.deleted:
            return
        reactions = {u: e for u, e in target.reactions.items() if u != entry.sender}
        match entry.kind:
            case "edit":
                now[target.seq] = msgspec.structs.replace(target, body=entry.body)
            case "delete":
                deleted = msgspec.structs.replace(target, body="", deleted=True, reactions={})
                now[target.seq] = deleted
            case "reaction":
                if entry.body:
                    reactions[entry.sender] = entry.body
                now[target.seq] = msgspec.structs.replace(target, reactions=reactions)

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
        self.story.scenes.append(Delivered(self._next_time(), user, device, chat, entry))
        self.story.scenes.append(Notified(self._next_time(), user, device, chat, "a mark"))
        return True

    def _seen(self, user: str, chat: str, *, is_whole: bool = False) -> Iterator[Shown]:
        """Yield the entries since a member's last join; with `is_whole`, all that they may read."""
        since, earlier = self.since[chat, user], self.earlier[chat, user] if is_whole else []
        for entry in self.logs[chat]:
            if entry.seq < since and not any(entry.seq in period for period in earlier):
                continue
            shown = self.now[chat][entry.seq]
            if (user, chat, entry.seq) in self.hidden:
                shown = msgspec.structs.replace(shown, body="", deleted=True, reactions={})
            yield shown

    def _read_page(self, user: str, chat: str) -> None:
        seqs = tuple(entry.seq for entry in self._seen(user, chat))[-5:]
        self.story.scenes.append(Page(self._next_time(), user, chat, seqs))

    def finish(self) -> Story:
        """Deliver everything, read everything and return the story."""
        self._perform("alice", "duo", "send", body="the end")
        for user, device in self.inboxes:
            while self._push(user, device):
                pass
        add = self.story.scenes.append
        for chat, log in self.logs.items():
            add(Stored(chat, tuple(self.now[chat][entry.seq] for entry in log)))
            for user in self.members[chat]:
                seen = tuple(self._seen(user, chat))
                add(Final(user, chat, tuple(self._seen(user, chat, is_whole=True))))
                for device in self.story.devices[user]:
                    add(Kept(user, device, chat, tuple(e for e in seen if e.kind == "text")))
                    unread = sum(
                        e.kind == "text" and not e.deleted and e.sender != user for e in seen
                    )
                    add(Unread(user, device, chat, 0, unread))
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
        return self.story


def make_story(seed: int, choices: list[str]) -> Story:
    """Return a valid story of these choices; `seed` selects users and chats."""
    story = ValidStoryModel(seed)
    for choice in choices:
        story.play(choice)
    return story.finish()
