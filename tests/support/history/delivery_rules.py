"""Rules for what devices receive: deliveries, inbox positions, watermarks, resets and pushes."""

from __future__ import annotations

from collections.abc import Iterator

from chatserver.loadtest.delivery_checker import Findings, ReceivedSeqs
from tests.support.history.events import (
    Delivered,
    Final,
    Line,
    LogEntry,
    Lost,
    Marked,
    Notified,
    Page,
    PushesRead,
    PushSent,
    Restarted,
    Skipped,
    Started,
    Unread,
    Unstored,
    Watermark,
    Withdrawn,
)
from tests.support.history.index import HistoryIndex
from tests.support.history.violation import Violation, name_of


class _OrderFindings(Findings):
    """The findings of the load test's checker, as violations of P4."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: list[Violation] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        self.violations.append(Violation("P4", f"{kind}: {text}"))


def find_wrong_deliveries(index: HistoryIndex) -> Iterator[Violation]:
    findings = _OrderFindings()
    for (user, device, chat), steps in sorted(index.delivered.items()):
        received: dict[str, ReceivedSeqs] = {}  # by epoch
        for step in steps:
            if isinstance(step, Skipped):
                due = [
                    seq
                    for seq in range(step.after + 1, step.upto + 1)
                    if index.of(chat).covers(user, seq) and not index.may_miss(user, chat, seq)
                ]
                if due and device not in index.restarted:
                    yield Violation("P4", f"{device} skipped {due} of {chat}")
            elif not step.is_read:
                seqs = received.setdefault(step.epoch, ReceivedSeqs())
                seqs.last = seqs.last or 0
                is_late = step.entry.seq <= seqs.last
                if is_late and _may_be_repeated(index, user, device, step.entry, chat):
                    continue
                seqs.record_pushed(step.entry.seq, f"{device} in {chat}", findings)
    yield from findings.violations


def _may_be_repeated(
    index: HistoryIndex, user: str, device: str, entry: LogEntry, chat: str
) -> bool:
    """Return whether a device may receive an entry again, or late, after a reset.

    This applies to devices that use the protocol directly, and to entries of an ended membership.
    Redis may have lost the record that the removal of the user and earlier entries were delivered.
    A snapshot has no position in a chat without the user, so the device cannot detect repeats. And
    a snapshot may include that the user left and joined again before the notices of both arrive.
    """
    is_raw = device.endswith("-raw") and device in index.restarted
    return is_raw and index.of(chat).has_ended(user, entry.seq)


def find_undelivered(index: HistoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        periods = index.of(chat)
        for user, devices in sorted(index.history.devices.items()):
            due = {
                entry.seq: entry
                for entry in log
                # The server creates the tombstone of a lost entry when it loads the chat, and
                # devices read it from history.
                if periods.covers(user, entry.seq)
                and not (index.has_losses and entry.is_loss_tombstone)
            }
            for device in devices:
                delivered = {
                    step.entry.seq
                    for step in index.delivered[user, device, chat]
                    if isinstance(step, Delivered)
                }
                for seq, entry in sorted(due.items()):
                    if seq not in delivered and _is_due(index, user, device, chat, entry):
                        text = f"{device} of {user} never received {name_of(chat, entry)}"
                        yield Violation("P4", text)


def _is_due(index: HistoryIndex, user: str, device: str, chat: str, entry: LogEntry) -> bool:
    """Return whether a device must have received an entry of a membership period of its user."""
    if index.may_miss(user, chat, entry.seq):
        return False
    if device in index.starts:
        asked = index.first_attempt(chat, entry)
        sent_at = None if asked is None else asked.t
        return all(_is_due_after(start, sent_at, chat, entry) for start in index.starts[device])
    if device not in index.restarted:
        return True
    # A snapshot has the current chats of the user. Earlier entries must be read from history.
    since = index.of(chat).open_since(user)
    return since is not None and entry.seq >= since


def _is_due_after(start: Started, sent_at: float | None, chat: str, entry: LogEntry) -> bool:
    if start.tops is not None and chat in start.tops:
        return entry.seq > start.tops[chat]
    return sent_at is not None and sent_at > start.t


def find_inbox_gaps(index: HistoryIndex) -> Iterator[Violation]:
    positions: dict[str, tuple[str, int]] = {}
    for event in index.history.events:
        match event:
            case Started():
                positions[event.device] = (event.epoch, event.seq)
            case Delivered() | Notified() if event.epoch:
                epoch, seq = positions.get(event.device, ("", 0))
                if (event.epoch, event.event) != (epoch, seq + 1):
                    text = f"{event.device} got event {event.epoch}:{event.event} after"
                    yield Violation("P4", f"{text} {epoch}:{seq}")
                positions[event.device] = (event.epoch, event.event)
            case _:
                pass


def find_leaks(index: HistoryIndex) -> Iterator[Violation]:
    for event in index.history.events:
        match event:
            case Delivered():
                where, seqs = event.device, (event.entry.seq,)
            case Page() | Final():
                where, seqs = event.user, tuple(entry.seq for entry in event.entries)
            case Notified() | Marked() if not index.of(event.chat).of.get(event.user):
                what = event.what if isinstance(event, Notified) else "a mark"
                yield Violation("P7", f"{what} of {event.chat} reached {event.device}, no member")
                continue
            case Line() | Unread() if index.of(event.chat).open_since(event.user) is None:
                yield Violation("P7", f"{event.device} lists {event.chat}, no member")
                continue
            case _:
                continue
        periods = index.of(event.chat)
        for seq in seqs:
            if not periods.covers(event.user, seq):
                yield Violation(
                    "P7", f"{event.chat}#{seq} reached {where}, who was not a member then"
                )
    for chat, log in index.logs.items():
        for entry in log:
            if index.has_losses and entry.is_loss_tombstone:
                continue
            if not index.of(chat).covers(entry.sender, entry.seq):
                yield Violation("P7", f"{name_of(chat, entry)} is from a non-member")
            if entry.kind in {"edit", "delete"} and not _may_change(index, chat, entry):
                yield Violation("P7", f"{name_of(chat, entry)} changes a message of another user")


def _may_change(index: HistoryIndex, chat: str, entry: LogEntry) -> bool:
    target = index.at(chat, entry.target or 0)
    owner = index.history.chats[chat][0]
    is_own = target is not None and target.sender == entry.sender
    return is_own or (entry.kind == "delete" and entry.sender == owner)


def find_missing_resets(index: HistoryIndex) -> Iterator[Violation]:
    last = max((s.t for s in index.history.events if isinstance(s, Lost)), default=None)
    starts: dict[str, float] = {}
    for event in index.history.events:
        match event:
            case Restarted(is_new_epoch=True):
                starts[event.device] = event.t
            case Withdrawn() if last is None:
                # After a new epoch, a client cannot read entries outside of the user's last period.
                since = index.of(event.chat).open_since(event.user) or 2**53
                seqs = [seq for seq in event.seqs if seq >= since]
                if seqs:
                    text = f"{event.device} withdrew {seqs} of {event.chat}"
                    yield Violation("E", f"{text}; Redis lost nothing")
            case _:
                pass
    if last is not None:
        for device in (name for names in index.history.devices.values() for name in names):
            if starts.get(device, 0.0) < last:
                yield Violation("E", f"{device} was not reset after Redis lost data")


def find_wrong_watermarks(index: HistoryIndex) -> Iterator[Violation]:
    for event in index.history.events:
        match event:
            case Watermark() if event.chat in index.logs:
                # A stored seq is never assigned to another entry, whatever Redis loses.
                if event.upto > len(index.logs[event.chat]):
                    text = f"{event.device} received that {event.chat} is stored up to {event.upto}"
                    yield Violation("S", f"{text} of {len(index.logs[event.chat])}")
            # Former members receive nothing more from the chat.
            case Unstored(refs=refs) if refs and index.of(event.chat).open_since(event.user):
                text = f"{event.device} was never notified that {list(refs[:5])} of {event.chat}"
                yield Violation("S", f"{text} are stored ({len(refs)})")
            case _:
                pass


def find_wrong_pushes(index: HistoryIndex) -> Iterator[Violation]:
    losses = [s.t for s in index.history.events if isinstance(s, Lost)]
    sent: dict[tuple[str, str, int, int], float] = {}
    pushed: set[tuple[str, str, int]] = set()
    for push in (s for s in index.history.events if isinstance(s, PushSent)):
        key = (push.user, push.chat, push.seq, push.ts)
        # The claim of a push is in Redis, so after a data loss it may be pushed again.
        if key in sent and not any(sent[key] <= t <= push.t for t in losses):
            yield Violation("I13", f"{push.user} was pushed {push.chat}#{push.seq} twice")
        sent[key] = push.t
        entry = index.at(push.chat, push.seq)
        if entry is None or entry.ts != push.ts:
            if not losses:
                yield Violation(
                    "I13", f"{push.user} was pushed {push.chat}#{push.seq}, which does not exist"
                )
            continue
        pushed.add((push.user, push.chat, push.seq))
        if entry.sender == push.user or not index.of(push.chat).covers(push.user, push.seq):
            yield Violation("I13", f"{push.user} was pushed {name_of(push.chat, entry)}")
    for event in index.history.events:
        if not isinstance(event, PushesRead):
            continue
        for chat, log in index.logs.items():
            since = index.of(chat).open_since(event.user)
            if since is None or chat in event.is_large:
                continue
            newest = [
                entry.seq
                for entry in log
                if entry.kind == "text"
                and not entry.deleted
                and entry.sender != event.user
                and entry.seq >= since
            ]
            if newest and (event.user, chat, newest[-1]) not in pushed:
                yield Violation("I13", f"{event.user} was never pushed {chat}#{newest[-1]}")
