"""Story checker: reports violated guarantees in chats with changing members.

Like `checker`, it does no I/O and reads no clock. `checker` covers the order of acks and of the
inbox of a protocol device. The reference for a chat is its log in DynamoDB at the end. The requests
are known, so the expected final content of each message is known.

| rule | violated when                                                                            |
|------|------------------------------------------------------------------------------------------|
| VOID | nothing was acked, or the end was not read, so the story proves nothing                  |
| P1   | an acked operation is not in the log at its seq                                          |
| P2   | a ref has two seqs, or the log has an operation permanently refused or never requested   |
| P3   | the log is not 1..N, its timestamps decrease, or another entry was observed at a seq  |
| P4   | a device received an entry twice, too late, or not at all                                |
| P6   | a page has a gap, or a member's whole history lacks entries of the membership periods    |
| P7   | a user received or sent something while not a member                                     |
| P10  | a message differs from its expected content: in DynamoDB, in a history, on a device; or  |
|      | something is unread after everything was read                                            |
| I13  | a push was sent twice, to a non-member, for an own message, or never                     |
| I14  | a read mark moved back or is not where it was set, or an unread count is wrong           |
| S    | `stored` was reported above the chat's last entry, or never for an acked one             |
| E    | an entry was withdrawn without a loss of Redis, or a device missed the new epoch         |

Violations excused by a loss of Redis are removed first (`losses`). All rules apply
to the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chatserver.domain.seq_gap_checks import is_contiguous, iter_not_ascending, list_missing_seqs
from tests.support.checker import Violation
from tests.support.losses import remove_lost
from tests.support.story import (
    CHANGES_OF_CHATS,
    ENTRY_OF,
    Answered,
    Asked,
    Delivered,
    Final,
    Kept,
    Line,
    Lost,
    Notified,
    Page,
    PushesRead,
    PushSent,
    ReadMark,
    Restarted,
    Shown,
    Skipped,
    Stored,
    Story,
    Unread,
    Unstored,
    Watermark,
    Withdrawn,
)
from tests.support.story_index import ExpectedMessage, StoryIndex


def check_story(story: Story) -> list[Violation]:
    """Return every violation, deterministically for the same story."""
    whole, index = StoryIndex(story), StoryIndex(remove_lost(story))
    found = [violation for rule in _RULES for violation in rule(index)]
    return [*found, *(violation for rule in _RULES_OF_ALL for violation in rule(whole))]


def find_undelivered_entries(story: Story, logs: dict[str, tuple[Shown, ...]]) -> list[Violation]:
    """Return the deliveries that are still missing, for polling."""
    scenes = [*story.scenes, *(Stored(chat, log) for chat, log in logs.items())]
    index = StoryIndex(remove_lost(Story(story.chats, story.devices, scenes)))
    return list(_is_undelivered(index))


def _name(chat: str, entry: Shown) -> str:
    return f"{entry.kind} {entry.sender}/{entry.ref} at {chat}#{entry.seq}"


def _find_void(index: StoryIndex) -> Iterator[Violation]:
    if not index.done:
        yield Violation("VOID", "nothing was acked")
    finals = {(s.user, s.chat) for s in index.story.scenes if isinstance(s, Final)}
    lines = {(s.device, s.chat) for s in index.story.scenes if isinstance(s, Line)}
    for chat in index.story.chats:
        if chat not in index.logs:
            yield Violation("VOID", f"DynamoDB was not read for {chat}")
        for user in index.of(chat).members():
            if (user, chat) not in finals and user in index.story.devices:
                yield Violation("VOID", f"no final history of {chat} for {user}")
            for device in index.story.devices.get(user, ()):
                if (device, chat) not in lines:
                    yield Violation("VOID", f"no line of {chat} in the list of {device}")


def _is_lost(index: StoryIndex) -> Iterator[Violation]:
    for (chat, user, ref), answer in index.done.items():
        asked = index.asked.get((chat, user, ref))
        if asked is None or asked.kind == "hide":
            continue
        if asked.kind in CHANGES_OF_CHATS:
            if not _is_change_done(index, asked, answer):
                yield Violation("P1", f"{asked.kind} {user}/{ref} of {chat} is not in the log")
            continue
        if asked.kind == "delete" and not answer.mid:  # the message had been deleted before
            log = index.logs.get(chat, ())
            if not any((e.kind, e.target) == ("delete", asked.target) for e in log):
                yield Violation("P1", f"delete {user}/{ref} of {chat}#{asked.target} is lost")
            continue
        entry = index.at(chat, answer.seq)
        wanted = (answer.seq, answer.ts, answer.mid, user, ref, ENTRY_OF[asked.kind])
        if entry is None or entry.place != wanted:
            there = "nothing" if entry is None else _name(chat, entry)
            yield Violation(
                "P1", f"acked {asked.kind} {user}/{ref} at {chat}#{answer.seq}: {there}"
            )


def _is_change_done(index: StoryIndex, asked: Asked, answer: Answered) -> bool:
    """Return whether a change is in the log, or was a membership change without effect."""
    log = index.logs.get(asked.chat, ())
    is_there = any((e.sender, e.ref) == (asked.user, asked.ref) for e in log)
    if is_there or asked.kind == "update":
        return is_there
    # It was applied after the entries known at the request and before later requests. Entries that
    # a device received and Redis lost prove nothing about seqs in the log.
    places = {(entry.seq, entry.mid) for entry in log}
    delivered = (s for s in index.story.scenes if isinstance(s, Delivered) and s.chat == asked.chat)
    seen = (s.entry for s in delivered if s.t < asked.t)
    first = max((e.seq for e in seen if (e.seq, e.mid) in places), default=0)
    asks = {entry.seq: index.asked.get((asked.chat, entry.sender, entry.ref)) for entry in log}
    later = (seq for seq, ask in asks.items() if ask is not None and ask.t > answer.t)
    last = min(later, default=len(log) + 1)
    periods, subject = index.of(asked.chat), asked.subject or asked.user
    wants_in = asked.kind in {"invite", "join"}
    return any(
        periods.is_member_after(subject, seq) == wants_in for seq in range(max(first, 1), last)
    )


def _is_not_once(index: StoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        places: dict[tuple[str, str], int] = {}
        for entry in log:
            key = (chat, entry.sender, entry.ref)
            asked = index.asked.get(key)
            if asked is None:
                yield Violation("P2", f"{_name(chat, entry)} was never requested")
            elif ENTRY_OF.get(asked.kind) != entry.kind:
                yield Violation("P2", f"{_name(chat, entry)} was requested as {asked.kind}")
            elif (asked.target or None) != entry.target:
                yield Violation("P2", f"{_name(chat, entry)} has another target: {entry.target}")
            if (
                key in index.refused
                and key not in index.done
                and not _may_be_both(index, entry, chat)
            ):
                code = index.refused[key].code
                yield Violation("P2", f"{_name(chat, entry)} was refused permanently ({code})")
            before = places.setdefault(key[1:], entry.seq)
            if before != entry.seq:
                yield Violation("P2", f"{_name(chat, entry)} is also at #{before}")


def _may_be_both(index: StoryIndex, entry: Shown, chat: str) -> bool:
    """Return whether a completed operation may have been refused on retry.

    A former member gets no confirmation of a change, because the chat does not exist for them.
    """
    log, periods = index.logs[chat], index.of(chat)
    was_removed = any(not periods.covers(entry.sender, e.seq) for e in log[entry.seq :])
    has_left = periods.open_since(entry.sender) is None
    return entry.kind in {"member", "update"} and (was_removed or has_left)


def _is_out_of_order(index: StoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        seqs = [entry.seq for entry in log]
        if not is_contiguous([0, *seqs]):
            holes = list_missing_seqs(seqs)
            yield Violation("P3", f"DynamoDB: {chat} is not 1..{max(seqs)}, {holes} are missing")
        for at in iter_not_ascending(entry.ts for entry in log):
            yield Violation("P3", f"{_name(chat, log[at])} is not later than {log[at - 1].seq}")
    for where, chat, entry in _sightings(index):
        stored = index.at(chat, entry.seq)
        if stored is not None and stored.place != entry.place:
            text = f"{where}: {_name(chat, entry)} is {_name(chat, stored)} in DynamoDB"
            yield Violation("P3", text)
        elif stored is None:
            yield Violation("P3", f"{where}: {_name(chat, entry)} is not in DynamoDB")


def _sightings(index: StoryIndex) -> Iterator[tuple[str, str, Shown]]:
    for scene in index.story.scenes:
        match scene:
            case Delivered():
                yield f"delivery to {scene.device}", scene.chat, scene.entry
            case Final():
                for entry in scene.entries:
                    yield f"history of {scene.user}", scene.chat, entry
            case Kept():
                for entry in scene.entries:
                    yield f"kept by {scene.device}", scene.chat, entry
            case _:
                pass


def _is_delivered_wrongly(index: StoryIndex) -> Iterator[Violation]:
    for (user, device, chat), steps in sorted(index.delivered.items()):
        last, seen = 0, set[int]()
        for step in steps:
            if isinstance(step, Skipped):
                due = [
                    seq
                    for seq in range(step.after + 1, step.upto + 1)
                    if index.of(chat).covers(user, seq)
                ]
                if due and device not in index.restarted:
                    yield Violation("P4", f"{device} skipped {due} of {chat}")
            elif not step.is_read:
                seq = step.entry.seq
                is_again = seq in seen
                if is_again and _may_be_repeated(index, user, device, step.entry, chat):
                    continue
                if is_again:
                    yield Violation("P4", f"{device} received {_name(chat, step.entry)} twice")
                elif seq < last:
                    text = f"{device} received {_name(chat, step.entry)} after #{last}"
                    yield Violation("P4", text)
                seen.add(seq)
                last = max(last, seq)


def _may_be_repeated(index: StoryIndex, user: str, device: str, entry: Shown, chat: str) -> bool:
    """Return whether a device may receive an entry again after a reset.

    This applies to devices that use the protocol directly, and to entries of an ended membership.
    Redis may have lost the record that the removal of the user and earlier entries were delivered.
    A snapshot has no position in a chat without the user, so the device cannot detect repeats.
    """
    is_raw = device.endswith("-raw") and device in index.restarted
    return is_raw and index.of(chat).has_ended(user, entry.seq)


def _is_undelivered(index: StoryIndex) -> Iterator[Violation]:
    for chat, log in index.logs.items():
        periods = index.of(chat)
        for user, devices in sorted(index.story.devices.items()):
            due = {entry.seq for entry in log if periods.covers(user, entry.seq)}
            for device in devices:
                wanted = due
                if device in index.restarted:
                    # A snapshot has the current chats of the user. Earlier entries must be read
                    # from history.
                    since = periods.open_since(user)
                    wanted = {seq for seq in due if since is not None and seq >= since}
                delivered = {
                    s.entry.seq
                    for s in index.delivered[user, device, chat]
                    if isinstance(s, Delivered)
                }
                for seq in sorted(wanted - delivered):
                    entry = index.at(chat, seq)
                    assert entry is not None
                    yield Violation("P4", f"{device} never received {_name(chat, entry)}")


def _has_incomplete_history(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        if isinstance(scene, Final):
            periods = index.of(scene.chat)
            is_member = periods.open_since(scene.user) is not None
            log = index.logs.get(scene.chat, ())
            wanted = [e.seq for e in log if is_member and periods.covers(scene.user, e.seq)]
            got = [entry.seq for entry in scene.entries]
            if got != wanted:
                missing, surplus = sorted(set(wanted) - set(got)), sorted(set(got) - set(wanted))
                text = f"history of {scene.chat} for {scene.user}: lacks {missing}, has {surplus}"
                yield Violation("P6", text)


def _is_leaked(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        match scene:
            case Delivered():
                where, seqs = scene.device, (scene.entry.seq,)
            case Page():
                where, seqs = scene.user, scene.seqs
            case Final():
                where, seqs = scene.user, tuple(entry.seq for entry in scene.entries)
            case Notified() if not index.of(scene.chat).of.get(scene.user):
                text = f"{scene.what} of {scene.chat} reached {scene.device}, never a member"
                yield Violation("P7", text)
                continue
            case _:
                continue
        periods = index.of(scene.chat)
        for seq in seqs:
            if not periods.covers(scene.user, seq):
                yield Violation(
                    "P7", f"{scene.chat}#{seq} reached {where}, who was not a member then"
                )
    for chat, log in index.logs.items():
        for entry in log:
            if not index.of(chat).covers(entry.sender, entry.seq):
                yield Violation("P7", f"{_name(chat, entry)} is from a non-member")
            if entry.kind in {"edit", "delete"} and not _may_change(index, chat, entry):
                yield Violation("P7", f"{_name(chat, entry)} changes a message of another user")


def _may_change(index: StoryIndex, chat: str, entry: Shown) -> bool:
    target = index.at(chat, entry.target or 0)
    owner = index.story.chats[chat][0]
    is_own = target is not None and target.sender == entry.sender
    return is_own or (entry.kind == "delete" and entry.sender == owner)


def _has_wrong_content(index: StoryIndex) -> Iterator[Violation]:
    wanted = {chat: index.messages(chat) for chat in index.logs}
    for scene in index.story.scenes:
        match scene:
            case Stored():
                where, since, hidden = "DynamoDB", 1, set[int]()
            case Final():
                where, since = f"history of {scene.user}", 1
                hidden = index.hidden_from(scene.user, scene.chat)
            case Kept():
                # After a membership period has ended, a device receives no further changes.
                where = f"kept by {scene.device}"
                since = index.of(scene.chat).open_since(scene.user) or 2**53
                hidden = index.hidden_from(scene.user, scene.chat)
            case _:
                continue
        for shown in scene.entries:
            message = wanted.get(scene.chat, {}).get(shown.seq)
            if message is None or shown.seq < since:
                continue
            if shown.seq in hidden:
                message = ExpectedMessage("", deleted=True)
            if not message.matches(shown):
                yield Violation(
                    "P10", f"{where}: {_name(scene.chat, shown)} is {shown}, not {message}"
                )


def _is_unread(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        if not isinstance(scene, Line):
            continue
        top = len(index.logs.get(scene.chat, ()))
        if index.of(scene.chat).open_since(scene.user) is None:
            yield Violation("P7", f"{scene.device} lists {scene.chat}, no member")
        elif (scene.top, scene.unread) != (top, 0):
            text = f"{scene.device} lists {scene.chat} with {scene.unread} unread of {scene.top}"
            yield Violation("P10", f"{text}; all of {top} was read")


def _is_never_restarted(index: StoryIndex) -> Iterator[Violation]:
    last = max((s.t for s in index.story.scenes if isinstance(s, Lost)), default=None)
    starts: dict[str, float] = {}
    for scene in index.story.scenes:
        match scene:
            case Restarted(is_new_epoch=True):
                starts[scene.device] = scene.t
            case Withdrawn() if last is None:
                # After a new epoch, a client cannot read entries outside of the user's last period.
                since = index.of(scene.chat).open_since(scene.user) or 2**53
                seqs = [seq for seq in scene.seqs if seq >= since]
                if seqs:
                    text = f"{scene.device} withdrew {seqs} of {scene.chat}"
                    yield Violation("E", f"{text}; Redis lost nothing")
            case _:
                pass
    if last is not None:
        for device in (name for names in index.story.devices.values() for name in names):
            if starts.get(device, 0.0) < last:
                yield Violation("E", f"{device} was not reset after Redis lost data")


def _is_watermark_wrong(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        match scene:
            case Watermark() if scene.chat in index.logs:
                # A stored seq is never assigned to another entry, whatever Redis loses.
                if scene.upto > len(index.logs[scene.chat]):
                    text = f"{scene.device} received that {scene.chat} is stored up to {scene.upto}"
                    yield Violation("S", f"{text} of {len(index.logs[scene.chat])}")
            # Former members receive nothing more from the chat.
            case Unstored(refs=refs) if refs and index.of(scene.chat).open_since(scene.user):
                text = f"{scene.device} was never notified that {list(refs[:5])} of {scene.chat}"
                yield Violation("S", f"{text} are stored ({len(refs)})")
            case _:
                pass


def _is_mark_wrong(index: StoryIndex) -> Iterator[Violation]:
    known: dict[tuple[str, str], list[ReadMark]] = defaultdict(list)
    for mark in (s for s in index.story.scenes if isinstance(s, ReadMark)):
        before = known[mark.user, mark.chat]
        highest = max((m.read for m in before if m.t <= mark.asked), default=0)
        top = len(index.logs.get(mark.chat, ()))
        name = f"read mark of {mark.user} in {mark.chat}"
        if mark.read < highest:
            yield Violation("I14", f"{name} moved from {highest} back to {mark.read}")
        if mark.read > top:
            yield Violation("I14", f"{name} is {mark.read}, above {top}")
        if mark.is_final and mark.read != top:
            yield Violation("I14", f"{name} is {mark.read} in DynamoDB, not {top}")
        before.append(mark)


def _is_count_wrong(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        if not isinstance(scene, Unread) or scene.chat not in index.logs:
            continue
        since = index.of(scene.chat).open_since(scene.user)
        if since is None:
            continue
        hidden = index.hidden_from(scene.user, scene.chat)
        wanted = sum(
            entry.kind == "text"
            and entry.sender != scene.user
            and entry.seq > scene.read
            and entry.seq >= since
            and not entry.deleted
            and entry.seq not in hidden
            for entry in index.logs[scene.chat]
        )
        if scene.unread != wanted:
            text = f"{scene.device} counts {scene.unread} unread of {scene.chat} after {scene.read}"
            yield Violation("I14", f"{text}, not {wanted}")


def _is_pushed_wrongly(index: StoryIndex) -> Iterator[Violation]:
    losses = [s.t for s in index.story.scenes if isinstance(s, Lost)]
    sent: dict[tuple[str, str, int, int], float] = {}
    pushed: set[tuple[str, str, int]] = set()
    for push in (s for s in index.story.scenes if isinstance(s, PushSent)):
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
            yield Violation("I13", f"{push.user} was pushed {_name(push.chat, entry)}")
    for scene in index.story.scenes:
        if not isinstance(scene, PushesRead):
            continue
        for chat, log in index.logs.items():
            since = index.of(chat).open_since(scene.user)
            if since is None or chat in scene.is_large:
                continue
            newest = [
                entry.seq
                for entry in log
                if entry.kind == "text"
                and not entry.deleted
                and entry.sender != scene.user
                and entry.seq >= since
            ]
            if newest and (scene.user, chat, newest[-1]) not in pushed:
                yield Violation("I13", f"{scene.user} was never pushed {chat}#{newest[-1]}")


def _has_incomplete_page(index: StoryIndex) -> Iterator[Violation]:
    for scene in index.story.scenes:
        if isinstance(scene, Page):
            seqs = list(scene.seqs)
            if not is_contiguous(seqs):
                yield Violation("P6", f"a page of {scene.chat} for {scene.user} is {seqs}")


_RULES = (
    _find_void,
    _is_lost,
    _is_not_once,
    _is_out_of_order,
    _is_delivered_wrongly,
    _is_undelivered,
    _has_incomplete_history,
    _is_leaked,
    _has_wrong_content,
    _is_unread,
    _is_mark_wrong,
    _is_count_wrong,
    _is_pushed_wrongly,
)
# These rules need the losses too.
_RULES_OF_ALL = (_has_incomplete_page, _is_never_restarted, _is_watermark_wrong)
