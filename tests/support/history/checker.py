"""History checker: reports the guarantees that a recorded run violated.

It does no I/O and reads no clock. The reference for a chat is its log in DynamoDB at the end. The
requests are known, so the expected final content of each message is known.

| rule | violated when                                                                            |
|------|------------------------------------------------------------------------------------------|
| VOID | nothing was acked, or the end was not read, so the history proves nothing                |
| P1   | an acked operation is not in the log at its seq                                          |
| P2   | a ref has two seqs, the log has an operation permanently refused or never requested, or  |
|      | a message was observed with a body that was never sent                                   |
| P3   | the log is not 1..N, its timestamps decrease, or another entry was observed at a seq     |
| P4   | a device received an entry twice, too late, or not at all, or its inbox has a gap        |
| P6   | a page has a gap or lacks entries known at its request, or a member's whole history      |
|      | differs from the log in the membership periods                                           |
| P7   | a user received, listed or sent something while not a member                             |
| P10  | a message differs from its expected content: in DynamoDB, in a history, on a device; a   |
|      | change affects another message than the one it names; or something is unread after       |
|      | everything was read                                                                      |
| I7   | pipelined sends on one connection got seqs in another order                              |
| I8   | an entry has a lower seq than one that was known before it was sent                      |
| I13  | a push was sent twice, to a non-member, for an own message, or never                     |
| I14  | a mark moved back, is beyond the head or not where it was set, or an unread count is     |
|      | wrong                                                                                    |
| S    | `stored` was reported above the chat's last entry, or never for an acked one             |
| E    | an entry was withdrawn without a loss of Redis, or a device missed the new epoch         |

Violations excused by a loss of Redis are removed first (`losses`). All rules apply to the rest. A
rule passes if the history has no events of its kind, apart from VOID.

The order at a device is checked by the load test's `delivery_checker`. The load test cannot record
its events, and therefore checks while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.history import delivery_rules, log_rules, read_rules
from tests.support.history.events import Final, History, Line, Unread
from tests.support.history.index import HistoryIndex
from tests.support.history.losses import remove_lost
from tests.support.history.violation import Violation


def check(history: History) -> list[Violation]:
    """Return every violation, deterministically for the same history."""
    whole, index = HistoryIndex(history), HistoryIndex(remove_lost(history))
    found = [violation for rule in _RULES for violation in rule(index)]
    return [*found, *(violation for rule in _RULES_OF_ALL for violation in rule(whole))]


def check_inboxes(history: History) -> list[Violation]:
    """Return the violations of the inbox order, which need no reads at the end."""
    index = HistoryIndex(history)
    rules = (delivery_rules.find_inbox_gaps, delivery_rules.find_wrong_deliveries)
    return [violation for rule in rules for violation in rule(index)]


def find_undelivered(history: History) -> list[Violation]:
    """Return the deliveries that are still missing, for polling."""
    index = HistoryIndex(history)
    if index.stored:
        index = HistoryIndex(remove_lost(history))
    return list(delivery_rules.find_undelivered(index))


def _find_void(index: HistoryIndex) -> Iterator[Violation]:
    if not index.done:
        yield Violation("VOID", "nothing was acked")
    finals = {(final.user, final.chat) for final in index.history.all_of(Final)}
    listed = index.history.all_of(Line) or index.history.all_of(Unread)
    lines = {(line.device, line.chat) for line in listed}
    for chat in index.history.chats:
        if chat not in index.stored:
            yield Violation("VOID", f"DynamoDB was not read for {chat}")
        for user in index.of(chat).members():
            if (user, chat) not in finals and user in index.history.devices:
                yield Violation("VOID", f"no final history of {chat} for {user}")
            for device in index.history.devices.get(user, ()):
                if (device, chat) not in lines:
                    yield Violation("VOID", f"no line of {chat} in the list of {device}")


_RULES = (
    _find_void,
    log_rules.find_lost,
    log_rules.find_not_once,
    log_rules.find_changes_of_other_messages,
    log_rules.find_phantoms,
    log_rules.find_out_of_order,
    log_rules.find_session_order_faults,
    log_rules.find_real_time_faults,
    delivery_rules.find_wrong_deliveries,
    delivery_rules.find_undelivered,
    read_rules.find_incomplete_histories,
    read_rules.find_incomplete_pages,
    delivery_rules.find_leaks,
    read_rules.find_wrong_content,
    read_rules.find_unread,
    read_rules.find_wrong_read_marks,
    read_rules.find_wrong_member_marks,
    read_rules.find_wrong_counts,
    delivery_rules.find_wrong_pushes,
)
# These rules also need the events that a loss excuses.
_RULES_OF_ALL = (
    delivery_rules.find_inbox_gaps,
    read_rules.find_page_gaps,
    delivery_rules.find_missing_resets,
    delivery_rules.find_wrong_watermarks,
)
