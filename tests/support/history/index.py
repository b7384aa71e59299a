"""A history grouped by chat, request and device, and the expected content of its messages."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator

from tests.support.history.events import (
    ENTRY_OF,
    Delivered,
    Final,
    History,
    Kept,
    LogEntry,
    Lost,
    MembershipPeriods,
    Named,
    Page,
    Requested,
    Responded,
    Restarted,
    Skipped,
    Started,
    Stored,
    Trimmed,
)

Key = tuple[str, str, str]  # the chat, the user and the ref of a request


@dataclasses.dataclass
class ExpectedMessage:
    """The expected content of a message after all changes."""

    body: str
    deleted: bool = False
    reactions: dict[str, str] = dataclasses.field(default_factory=dict)

    def matches(self, shown: LogEntry) -> bool:
        """Return whether an observed entry matches."""
        if self.deleted or shown.deleted:
            return self.deleted == shown.deleted and not shown.body
        return (self.body, self.reactions) == (shown.body, shown.reactions)


@dataclasses.dataclass(frozen=True)
class Sighting:
    """An entry that a device received or read; `t` is None at the end of the run."""

    where: str
    chat: str
    entry: LogEntry
    t: float | None = None


class HistoryIndex:
    """The history, grouped once for all rules.

    The reference for a chat is its log in DynamoDB. Until that was read, it is the first entry that
    was observed at each seq.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.logs: dict[str, tuple[LogEntry, ...]] = {}
        self.stored: set[str] = set()  # chats with a log of DynamoDB
        self.periods: dict[str, MembershipPeriods] = {}
        self.asked: dict[Key, Requested] = {}  # the first attempt
        self.attempts: dict[Key, list[Requested]] = defaultdict(list)
        self.named: dict[Key, str] = {}  # the ref of the message that a request changes
        self.done: dict[Key, Responded] = {}
        self.refused: dict[Key, list[Responded]] = defaultdict(list)
        self.delivered: dict[tuple[str, str, str], list[Delivered | Skipped]] = defaultdict(list)
        self.restarted: set[str] = set()  # devices
        self.starts: dict[str, list[Started]] = defaultdict(list)  # by device
        self.trimmed: dict[str, int] = {}  # large chat → newest seq that Redis no longer has
        self.has_losses = False
        for event in history.events:
            match event:
                case Requested(chat=chat, user=user, ref=ref):
                    self.asked.setdefault((chat, user, ref), event)
                    self.attempts[chat, user, ref].append(event)
                case Named(chat=chat, user=user, ref=ref, target_ref=target_ref):
                    self.named[chat, user, ref] = target_ref
                case Responded(chat=chat, user=user, ref=ref, code=""):
                    self.done.setdefault((chat, user, ref), event)
                case Responded(chat=chat, user=user, ref=ref):
                    self.refused[chat, user, ref].append(event)
                case Delivered() | Skipped():
                    self.delivered[event.user, event.device, event.chat].append(event)
                case Restarted():
                    self.restarted.add(event.device)
                case Started():
                    self.starts[event.device].append(event)
                case Lost():
                    self.has_losses = True
                case Stored():
                    self.stored.add(event.chat)
                    self._set_log(event.chat, event.entries)
                case Trimmed():
                    self.trimmed[event.chat] = event.upto
                case _:
                    pass
        self.sightings = list(self._list_sightings())
        self._add_observed_logs()

    def _list_sightings(self) -> Iterator[Sighting]:
        for event in self.history.events:
            match event:
                case Delivered():
                    where = f"delivery to {event.device}"
                    yield Sighting(where, event.chat, event.entry, event.t)
                case Page():
                    for entry in event.entries:
                        yield Sighting(f"page of {event.user}", event.chat, entry, event.t)
                case Final():
                    for entry in event.entries:
                        yield Sighting(f"history of {event.user}", event.chat, entry)
                case Kept():
                    for entry in event.entries:
                        yield Sighting(f"kept by {event.device}", event.chat, entry)
                case _:
                    pass

    def placed_acks(self) -> Iterator[tuple[Responded, LogEntry]]:
        """Yield each ack of an operation that made an entry, and that entry."""
        for ack in self.history.acks():
            asked = self.asked.get((ack.chat, ack.user, ack.ref))
            if ack.mid and asked is not None and asked.kind != "hide":
                place = (ack.seq, ack.ts, ack.mid, ack.user, ack.ref)
                yield ack, LogEntry(*place, ENTRY_OF[asked.kind], asked.body)

    def _add_observed_logs(self) -> None:
        observed: dict[str, dict[int, LogEntry]] = {chat: {} for chat in self.history.chats}
        for sighting in self.sightings:
            observed.setdefault(sighting.chat, {}).setdefault(sighting.entry.seq, sighting.entry)
        for ack, entry in self.placed_acks():
            observed.setdefault(ack.chat, {}).setdefault(ack.seq, entry)
        for chat, entries in observed.items():
            if chat not in self.stored:
                self._set_log(chat, tuple(entries[seq] for seq in sorted(entries)))

    def _set_log(self, chat: str, log: tuple[LogEntry, ...]) -> None:
        self.logs[chat] = log
        self.periods[chat] = MembershipPeriods(self.history.chats.get(chat, ()), log)

    def may_miss(self, user: str, chat: str, seq: int) -> bool:
        """Return whether a device may miss an entry of a large chat.

        A device that was offline reads what it missed from the chat's log in Redis, if the log has
        all of it, otherwise from history, which a former member cannot read
        (`docs/guarantees.md`, P4). It may have missed more than the period of this entry.
        """
        return self.trimmed.get(chat, 0) > 0 and self.of(chat).has_ended(user, seq)

    def of(self, chat: str) -> MembershipPeriods:
        """Return the membership periods of a chat; empty for an unknown one."""
        return self.periods.get(chat) or MembershipPeriods((), ())

    def at(self, chat: str, seq: int) -> LogEntry | None:
        """Return the entry of the log at a seq."""
        log = self.logs.get(chat, ())
        if 0 < seq <= len(log) and log[seq - 1].seq == seq:
            return log[seq - 1]
        return next((entry for entry in log if entry.seq == seq), None)

    def first_attempt(self, chat: str, entry: LogEntry) -> Requested | None:
        """Return the request that made an entry; None for a phantom."""
        return self.asked.get((chat, entry.sender, entry.ref))

    def find_wrong_target(self, key: Key, target: int) -> LogEntry | None:
        """Return the entry at seq `target` if the request names another message."""
        entry, name = self.at(key[0], target), self.named.get(key)
        if name is None or entry is None or entry.ref == name or entry.is_loss_tombstone:
            return None
        return entry

    def messages(self, chat: str) -> dict[int, ExpectedMessage]:
        """Return the expected messages of a chat, from the requests in log order."""
        messages: dict[int, ExpectedMessage] = {}
        for entry in self.logs.get(chat, ()):
            asked = self.first_attempt(chat, entry)
            if entry.kind == "text":
                messages[entry.seq] = ExpectedMessage(asked.body if asked is not None else "?")
            target = messages.get(entry.target or 0)
            if target is None or asked is None or target.deleted:
                continue
            match entry.kind:
                case "edit":
                    target.body = asked.body
                case "delete":
                    target.deleted = True
                case "reaction" if asked.body:
                    target.reactions[entry.sender] = asked.body
                case "reaction":
                    target.reactions.pop(entry.sender, None)
                case _:
                    pass
        return messages

    def hidden_from(self, user: str, chat: str) -> set[int]:
        """Return the seqs of messages that a user deleted only for themselves."""
        return {
            asked.target
            for key, asked in self.asked.items()
            if asked.kind == "hide"
            and key[:2] == (chat, user)
            and key in self.done
            and not self.find_wrong_target(key, asked.target)
        }

    def maybe_hidden_from(self, user: str, chat: str) -> set[int]:
        """Return the seqs of messages that may be hidden: the ack is excused by a loss."""
        return {
            asked.target
            for key, asked in self.asked.items()
            if asked.kind == "hide"
            and key[:2] == (chat, user)
            and key not in self.done
            and key not in self.refused
            and not self.find_wrong_target(key, asked.target)
        }
