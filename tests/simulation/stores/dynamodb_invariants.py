"""Invariants of the data in DynamoDB and S3 when everything is persisted.

Each function yields the violations of one invariant.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.simulation.stores.snapshot import Chat, Row, Stores, read_segment

_EVENTS = {"edit", "delete", "reaction", "member", "update", "pin", "unpin"}


def find_wrong_positions(stores: Stores) -> Iterator[str]:
    """The entries of a chat are 1..N, each in one item or segment, with rising timestamps."""
    for chat in stores.chats.values():
        counts = Counter(row["seq"] for row in chat.items)
        repeated = sorted(seq for seq, count in counts.items() if count > 1)
        if repeated:
            yield f"{chat.name} has several items at {repeated}"
        missing = sorted(set(range(1, chat.newest + 1)) - set(chat.entries))
        if missing:
            yield f"{chat.name} has no entries at {missing} of {chat.newest}"
        ordered = [chat.entries[seq]["ts"] for seq in sorted(chat.entries)]
        for before, after in itertools.pairwise(ordered):
            if after <= before:
                yield f"{chat.name} has ts {after} after {before}"


def find_repeated_ids(stores: Stores) -> Iterator[str]:
    for chat in stores.chats.values():
        entries = chat.entries.values()
        mids = Counter(entry["mid"] for entry in entries)
        refs = Counter((_sender_of(entry), entry["ref"], entry.get("user")) for entry in entries)
        for what, count in [*mids.items(), *refs.items()]:
            if count > 1:
                yield f"{chat.name} has {what} {count} times"


def _sender_of(entry: Row) -> Any:
    return entry["sender_id"] if "sender_id" in entry else entry["sender"]


def _is_event(entry: Row) -> bool:
    return entry["kind"] in _EVENTS


def find_wrong_index_attributes(stores: Stores) -> Iterator[str]:
    """The attributes of the indexes fit the state of the item."""
    for chat in stores.chats.values():
        for row in chat.items:
            status = "event" if _is_event(row) else "deleted" if "deleted" in row else "active"
            place = f"{chat.name}#{row['seq']}"
            if (row["status"], row["status_ts"]) != (status, f"{status}#{row['ts']:020}"):
                yield f"{place} has status {row['status']}, {row['status_ts']}, but is {status}"
            others = set(chat.row.get("users", ())) - {row["sender_id"]}
            is_received = chat.row["kind"] == "direct" and not _is_event(row)
            expected = others.pop() if is_received and others else None
            if row.get("receiver_id") != expected:
                yield f"{place} has receiver {row.get('receiver_id')}, not {expected}"
            rev = row.get("sum", "..").split(".")[1]
            if rev != str(row["rev"]):
                yield f"{place} has revision {row['rev']}, its checksum is of {rev}"


def find_wrong_states(stores: Stores) -> Iterator[str]:
    """Each message has the state that results from the entries that change it."""
    for chat in stores.chats.values():
        expected = {seq: _State() for seq, entry in chat.entries.items() if not _is_event(entry)}
        for seq in sorted(chat.entries):
            entry = chat.entries[seq]
            state = expected.get(entry.get("target") or 0)
            if state is not None:
                state.apply(seq, entry)
            elif entry["kind"] in {"edit", "delete", "reaction"}:
                yield f"{chat.name}#{seq} changes {entry.get('target')}, which is no message"
        for seq, state in expected.items():
            state.is_deleted |= chat.entries[seq]["kind"] == "lost"
            yield from state.compare(f"{chat.name}#{seq}", chat.entries[seq])


class _State:
    """The state of a message after its changes."""

    def __init__(self) -> None:
        self.rev = 1
        self.edited_seq: int | None = None
        self.is_deleted = False
        self.reactions: dict[str, str] = {}

    def apply(self, seq: int, entry: Row) -> None:
        match entry["kind"]:
            case "edit":
                self.edited_seq = seq
            case "delete":
                self.is_deleted = True
                self.reactions.clear()
            case "reaction":
                sender = _sender_of(entry)
                self.reactions.pop(sender, None)
                if entry.get("body"):
                    self.reactions[sender] = entry["body"]
            case _:
                return
        self.rev = seq

    def compare(self, place: str, entry: Row) -> Iterator[str]:
        is_deleted = bool(entry.get("deleted"))
        found = {
            "rev": (entry.get("rev") or 1, self.rev),
            "deleted": (is_deleted, self.is_deleted),
            "reactions": (entry.get("reactions") or {}, self.reactions),
        }
        if not is_deleted:
            found["edited_seq"] = (entry.get("edited_seq"), self.edited_seq)
        elif entry.get("body") or entry.get("attachments"):
            yield f"{place} is deleted, but has content"
        for name, (stored, due) in found.items():
            if stored != due:
                yield f"{name} of {place} is {stored!r}, its changes give {due!r}"


def find_replaced_edits(stores: Stores) -> Iterator[str]:
    """The text of an edit that was replaced or whose message is deleted is gone."""
    for chat in stores.chats.values():
        for seq, entry in chat.entries.items():
            if entry["kind"] != "edit" or entry.get("deleted"):
                continue
            message = chat.entries.get(entry["target"])
            if message is not None and message.get("edited_seq") != seq and entry.get("body"):
                yield f"edit {chat.name}#{seq} of {entry['target']} still has its text"


def find_wrong_rows(stores: Stores) -> Iterator[str]:
    """The rows of a chat and of its members agree."""
    for name in stores.orphans:
        yield f"{name} has data, but no row"
    for chat in stores.chats.values():
        row, members = chat.row, chat.members
        if row.get("state") != "ready":
            yield f"{chat.name} is {row.get('state')}"
        if chat.is_unused_direct:
            continue
        if row["members"] != len(members):
            yield f"{chat.name} counts {row['members']} members, and has {sorted(members)}"
        if "users" in row and set(row["users"]) != set(members):
            yield f"{chat.name} is of {row['users']}, and has {sorted(members)}"
        for user, member in members.items():
            for field in ("read", "received", "joined"):
                if not 0 <= member[field] <= chat.newest:
                    yield f"{field} of {user} in {chat.name} is {member[field]} of {chat.newest}"
            beyond = [seq for seq in member.get("hidden", ()) if abs(seq) > chat.newest]
            if beyond:
                yield f"{chat.name} hides {beyond} of {chat.newest} from {user}"


def find_wrong_memberships(stores: Stores) -> Iterator[str]:
    """The members are those that the last entry about each user says."""
    for chat in stores.chats.values():
        last: dict[str, Row] = {}
        for seq in sorted(chat.entries):
            entry = chat.entries[seq]
            if entry["kind"] == "member" and entry.get("user"):
                last[entry["user"]] = entry
        for user, entry in last.items():
            is_member = bool(entry.get("role"))
            if is_member != (user in chat.members):
                place = f"{chat.name}#{entry['seq']}"
                state = "a member" if is_member else "no member"
                yield f"{user} is {state} after {place}, the row differs"


def find_wrong_segments(stores: Stores) -> Iterator[str]:
    """Segments are contiguous from 1, complete, and have what their rows say."""
    for chat in stores.chats.values():
        last = 0
        for row in chat.segments:
            if row["first"] != last + 1:
                yield f"{chat.name} has segment {row['first']} to {row['last']} after {last}"
            last = row["last"]
            yield from _check_object(chat, row, stores.objects.get(chat.name_object(row)))
        archived = chat.archive["last"] if chat.archive is not None else 0
        if archived != last:
            yield f"{chat.name} is archived up to {archived}, its segments end at {last}"


def _check_object(chat: Chat, row: Row, content: bytes | None) -> Iterator[str]:
    name = f"segment {row['first']} to {row['last']} of {chat.name}"
    if content is None:
        yield f"{name} has no object"
        return
    if hashlib.sha256(content).hexdigest() != row["sha256"]:
        yield f"{name} has another checksum than its row"
    seqs = [entry["seq"] for entry in read_segment(content)]
    if seqs != list(range(row["first"], row["last"] + 1)):
        yield f"{name} has the entries {seqs}"


def find_archived_items(stores: Stores) -> Iterator[str]:
    """No entry is both in a segment and in an item."""
    for chat in stores.chats.values():
        last = chat.segments[-1]["last"] if chat.segments else 0
        both = [row["seq"] for row in chat.items if row["seq"] <= last]
        if both:
            yield f"{chat.name} is archived up to {last}, and still has the items {both}"


def find_orphaned_objects(stores: Stores) -> Iterator[str]:
    """Each object of the archive is that of a segment, or is recorded for its removal."""
    known = {
        chat.name_object(row)
        for chat in stores.chats.values()
        for row in (*chat.segments, *chat.records)
    }
    for name in stores.objects:
        if name.startswith("archive/") and name not in known:
            yield f"{name} has no row"
