"""A model of a correct chat server that generates valid histories for the checker.

It has no processes, sockets or clock. A list of choices drives it, so that a property test can
search for a valid history that the checker wrongly refuses.
"""

from __future__ import annotations

import dataclasses
import random

from tests.support.observations import (
    Acked,
    AnyObservation,
    FinalHistory,
    Listed,
    Marked,
    PageRead,
    Pushed,
    Refused,
    Row,
    Run,
    Sent,
    Signalled,
    Started,
    WarmRows,
)

MEMBERS = {"duo": {"alice", "bob"}, "trio": {"alice", "bob", "carol"}}
USERS = ("alice", "bob", "carol")


@dataclasses.dataclass
class Device:
    """One client: its inbox position, and its unanswered sends."""

    user: str
    name: str
    conn: int
    seq: int = 0
    pending: list[Sent] = dataclasses.field(default_factory=list)


class ValidRunModel:
    """Applies choices to a correct server and records what the clients observe."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._t = 0.0
        self._conns = 0
        self._refs = 0
        self._ts = 1_000_000
        self.seen: list[AnyObservation] = []
        self.logs: dict[str, list[Row]] = {chat: [] for chat in MEMBERS}
        self.inboxes: dict[str, list[Row]] = {user: [] for user in USERS}
        self.reads = {(chat, user): 0 for chat, users in MEMBERS.items() for user in users}
        self.devices = [self.open_device(user, f"{user}-1") for user in USERS]

    def now(self) -> float:
        """Return a time later than all earlier ones."""
        self._t += 0.001
        return self._t

    def open_device(self, user: str, name: str) -> Device:
        """Start a fresh device at the head of its user's inbox."""
        self._conns += 1
        device = Device(user, name, self._conns, len(self.inboxes[user]))
        self.seen.append(Started(self.now(), user, name, "e1", device.seq))
        return device

    def send(self, outcome: str) -> None:
        """Send from a device: acked, refused, or with the ack or the request lost."""
        device = self._random.choice(self.devices)
        chat = self._random.choice([c for c, users in MEMBERS.items() if device.user in users])
        self._refs += 1
        ref = f"r{self._refs}"
        sent = Sent(self.now(), device.user, device.name, device.conn, chat, ref, f"body of {ref}")
        self.seen.append(sent)
        if outcome == "refused":
            t = self.now()
            self.seen.append(Refused(t, device.user, device.conn, chat, ref, "rate_limited"))
            return
        if outcome == "ack" and not device.pending:
            self._ack(sent, self._commit(sent), dup=False)
            return
        # After the first lost response, this connection gets no responses any more.
        if outcome != "lost_before" and all(self._find(try_) for try_ in device.pending):
            self._commit(sent)
        device.pending.append(sent)

    def _find(self, sent: Sent) -> Row | None:
        rows = self.logs[sent.chat]
        return next((r for r in rows if (r.sender, r.ref) == (sent.user, sent.ref)), None)

    def _commit(self, sent: Sent) -> Row:
        log = self.logs[sent.chat]
        self._ts += self._random.randint(1, 50)
        mid = f"m-{sent.chat}-{len(log) + 1}"
        row = Row(sent.chat, len(log) + 1, self._ts, mid, sent.user, sent.ref, sent.body)
        log.append(row)
        for user in MEMBERS[sent.chat]:
            self.inboxes[user].append(row)
        return row

    def _ack(self, sent: Sent, row: Row, *, dup: bool) -> None:
        names = (sent.user, sent.device, sent.conn, sent.chat, sent.ref, sent.body)
        self.seen.append(Acked(self.now(), *names, row.seq, row.ts, row.mid, dup))

    def push(self) -> None:
        """Push the next event of its inbox to a random device."""
        self._push_to(self._random.choice(self.devices))

    def _push_to(self, device: Device) -> bool:
        inbox = self.inboxes[device.user]
        if device.seq == len(inbox):
            return False
        row = inbox[device.seq]
        device.seq += 1
        names = (device.user, device.name, "e1", device.seq, row.chat)
        self.seen.append(Pushed(self.now(), *names, row))
        return True

    def reconnect(self) -> None:
        """Reconnect a device, which repeats its unanswered sends in order."""
        self._reconnect(self._random.choice(self.devices))

    def _reconnect(self, device: Device) -> None:
        self._conns += 1
        device.conn = self._conns
        for old in device.pending:
            names = (device.user, device.name, device.conn, old.chat, old.ref, old.body)
            again = Sent(self.now(), *names)
            self.seen.append(again)
            found = self._find(again)
            self._ack(again, found or self._commit(again), dup=found is not None)
        device.pending.clear()

    def read_page(self) -> None:
        """Read a page as a random member, from the end or from a position."""
        chat = self._random.choice(list(MEMBERS))
        user = self._random.choice(sorted(MEMBERS[chat]))
        log, limit, requested_at = self.logs[chat], self._random.randint(1, 5), self.now()
        position = self._random.randint(0, len(log) + 1)
        before = after = None
        match self._random.choice(["newest", "before", "after"]):
            case "newest":
                rows, more = log[-limit:], len(log) > limit
            case "before":
                before = position
                older = log[: max(0, before - 1)]
                rows, more = older[-limit:], len(older) > limit
            case _:
                after = position
                rows, more = log[after : after + limit], len(log) > after + limit
        page = PageRead(
            requested_at, self.now(), user, chat, before, after, more, "hot", tuple(rows)
        )
        self.seen.append(page)

    def mark(self) -> None:
        """Move a member's read mark to the head, and send the event to another device."""
        chat = self._random.choice(list(MEMBERS))
        user = self._random.choice(sorted(MEMBERS[chat]))
        head = self.reads[chat, user] = len(self.logs[chat])
        self.seen.append(Marked(self.now(), "bob", "bob-1", chat, user, head, head))
        self.seen.append(Signalled(self.now(), "bob", chat, user))

    def join_late(self) -> None:
        """Add a device of a user, which starts at the head of the inbox."""
        user = self._random.choice(USERS)
        self.devices.append(self.open_device(user, f"{user}-{len(self.devices)}"))

    def finish(self) -> Run:
        """Deliver everything, read everything and return the run."""
        for device in self.devices:
            self._reconnect(device)
        if not any(self.logs.values()):
            self.send("ack")
        for device in self.devices:
            while self._push_to(device):
                pass
        for chat, users in MEMBERS.items():
            rows = tuple(self.logs[chat])
            for user in sorted(users):
                read = self.reads[chat, user]
                self.seen.append(FinalHistory(self.now(), user, chat, rows))
                unread = len(rows) - read
                self.seen.append(Listed(self.now(), user, chat, len(rows), read, unread))
            self.seen.append(WarmRows(self.now(), chat, rows))
        return Run({chat: set(users) for chat, users in MEMBERS.items()}, self.seen)


CHOICES = (
    "ack",
    "lost_ack",
    "lost_before",
    "refused",
    "push",
    "push",
    "reconnect",
    "page",
    "mark",
    "join",
)


def make_run(seed: int, choices: list[str]) -> Run:
    """Return a valid run of these choices; `seed` selects users and chats."""
    run = ValidRunModel(seed)
    for choice in choices:
        match choice:
            case "push":
                run.push()
            case "reconnect":
                run.reconnect()
            case "page":
                run.read_page()
            case "mark":
                run.mark()
            case "join":
                run.join_late()
            case _:
                run.send(choice)
    return run.finish()
