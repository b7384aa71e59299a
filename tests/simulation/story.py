"""Story of a violation: what happened to its message and its device, in order.

The violation is the first in a report. The story also has the faults and the membership changes of
the user, because these usually explain it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from tests.support.history.events import (
    Delivered,
    Event,
    History,
    LogEntry,
    Lost,
    Named,
    Requested,
    Responded,
    Restarted,
    Skipped,
    Started,
    Stored,
    Watermark,
    Withdrawn,
)

LINES_MAX: Final = 40
_RULE: Final = re.compile(r"^(?!VOID)[A-Z][A-Z0-9_]*: ")
_REF: Final = re.compile(r"\b(\w+)/([a-z]+-\d+)\b")
_PLACE: Final = re.compile(r"\b([dg]-\w+)(?:#(\d+))?")
_DEVICE: Final = re.compile(r"\b(u\d+)-(?:\d+|raw)\b")
_USER: Final = re.compile(r"\b(u\d+)\b")
_FAULT: Final = re.compile(r"^(\d+\.\d+) ([a-z_0-9]+ \([\d, -]*\))$")


class Subject(NamedTuple):
    """The chat, message, user or device of a violation; unknown fields are empty."""

    chat: str = ""
    seq: int = 0
    ref: str = ""
    user: str = ""
    device: str = ""

    def concerns(self, event: Event) -> str:
        """Describe an event if it belongs to the story; otherwise return an empty text."""
        chat = getattr(event, "chat", self.chat)
        if chat != self.chat:
            return ""
        match event:
            case Lost():
                return f"Redis loses data: {event.what}"
            case Requested() if self._is_ref(event.ref) or self._is_change(event):
                target = f" of #{event.target}" if event.target else ""
                text = event.subject or repr(event.body)
                return f"{event.user} requests {event.kind} {event.ref}{target}: {text}"
            case Named() if self._is_ref(event.ref):
                return f"{event.user} names message {event.target_ref} for {event.ref}"
            case Responded() if self._is_ref(event.ref):
                outcome = event.code or f"ack at #{event.seq}{' again' * event.dup}"
                return f"{event.device or event.user} gets {outcome} for {event.ref}"
            case Delivered() if self._is_entry(event.entry):
                return f"{event.device} receives {_name(event.entry)}"
            case Watermark() if event.device == self.device and event.upto >= self.seq:
                return f"{event.device} receives that #{event.upto} is stored"
            case Withdrawn() if self.seq in event.seqs or event.device == self.device:
                return f"{event.device} withdraws {list(event.seqs)}"
            case Skipped() if event.device == self.device:
                return f"{event.device} skips #{event.after + 1} to #{event.upto}"
            case Started() if event.device == self.device:
                top = "" if event.tops is None else f", #{event.tops.get(self.chat, 0)} of the chat"
                return f"{event.device} starts at {event.epoch[-4:]}:{event.seq}{top}"
            case Restarted() if event.device == self.device:
                return f"{event.device} restarts{' in a new epoch' * event.is_new_epoch}"
            case _:
                return ""

    def _is_ref(self, ref: str) -> bool:
        return bool(self.ref) and ref == self.ref

    def _is_change(self, event: Requested) -> bool:
        """Return whether a request changes the message or the membership of the user."""
        is_member = event.kind in {"invite", "join", "leave", "remove"}
        is_change = bool(self.seq) and event.target == self.seq
        return is_change or (is_member and self.user in {event.subject or event.user})

    def _is_entry(self, entry: LogEntry) -> bool:
        is_member = entry.kind == "member" and entry.user == self.user
        return entry.seq == self.seq or self._is_ref(entry.ref) or is_member


def _name(entry: LogEntry) -> str:
    return f"#{entry.seq} {entry.kind} {entry.sender}/{entry.ref}{' (deleted)' * entry.deleted}"


def find_subject(report: str) -> Subject | None:
    """Return what the first violation of a report that names a chat is about."""
    lines = (line for line in report.splitlines() if _RULE.match(line))
    found = next(((line, place) for line in lines if (place := _PLACE.search(line))), None)
    if found is None:
        return None
    line, place = found
    ref, device = _REF.search(line), _DEVICE.search(line)
    user = device or ref or _USER.search(line)
    return Subject(
        place[1],
        int(place[2] or 0),
        ref[2] if ref else "",
        user[1] if user else "",
        device[0] if device else "",
    )


def _complete(subject: Subject, history: History) -> Subject:
    """Add the ref of the entry that is stored at the position, or the position of the ref."""
    for stored in history.all_of(Stored):
        for entry in stored.entries if stored.chat == subject.chat else ():
            if subject.seq == entry.seq and not subject.ref:
                return subject._replace(ref=entry.ref, user=subject.user or entry.sender)
            if subject.ref == entry.ref and not subject.seq:
                return subject._replace(seq=entry.seq)
    return subject


def describe_violation(
    report: str, history: History, trace: Iterable[str], faults: Collection[str]
) -> list[str]:
    """Return the story of the first violation of a report; empty if it is about no chat.

    `faults` are the names of the actions that are faults.
    """
    subject = find_subject(report)
    if subject is None:
        return []
    subject = _complete(subject, history)
    lines_at = [
        (event.t, text)
        for event in history.events
        if (text := subject.concerns(event))
        and not isinstance(event, Stored)
        and hasattr(event, "t")
    ]
    lines_at += _iter_faults(trace, faults)
    lines_at.sort(key=lambda each: each[0])
    lines = [f"{at:9.3f}  {text}" for at, text in lines_at]
    if len(lines) > LINES_MAX:
        half = LINES_MAX // 2
        lines[half:-half] = [f"           … {len(lines) - LINES_MAX} more"]
    end = f"in the end, #{subject.seq} of {subject.chat} is " if subject.seq else ""
    stored = next((s.entries for s in history.all_of(Stored) if s.chat == subject.chat), None)
    if end and stored is not None:
        found = [_name(entry) for entry in stored if entry.seq == subject.seq]
        lines.append(f"           {end}{found[0] if found else 'not stored'}")
    return [f"story of {subject.ref or subject.chat} {subject.device}".rstrip(), *lines]


def _iter_faults(trace: Iterable[str], faults: Collection[str]) -> Iterator[tuple[float, str]]:
    at = 0.0
    for line in trace:
        found = _FAULT.match(line)
        if found:
            at = float(found[1])
            if found[2].partition(" ")[0] in faults:
                yield at, found[2]
        elif line.startswith("kill "):
            yield at, line
