"""State machine of one session: stages, events, and the device's inbox position.

::

    NEW ──HELLO──► OPENING ──WELCOME──► WELCOMED ──GO_LIVE──► LIVE ──RECOVER──► RECOVERING
                                        ▲      │              ▲ ▲                ▲   │   │
                                        └──────┘              │ └────ABANDON─────│───┘   │
                                        SNAPSHOT              │                  └───────┤
                                                              └─────────GO_LIVE──────────┘ SNAPSHOT

    every stage ──CLOSE──► CLOSED, which ignores all later events

What the server is allowed to send, by stage:

========== =======================================================================================
NEW        `bye`
OPENING    `welcome`, `bye`
WELCOMED   `reset` or `too_long`, errors for requests that were held too long, `bye`
LIVE       events, signals, `stored`, chat summaries, responses, `bye`
RECOVERING `reset` or `too_long`, `stored`, responses, `bye`
CLOSED     nothing
========== =======================================================================================

Client frames are processed in NEW (`hello` only) and in LIVE. At other times, and while an earlier
frame waits for Redis, they are held.

Invariants (guarantee P4): only `welcome` and snapshots (`reset`, `too_long`) change the device's
epoch. An event is sent only if the session is LIVE, the event is in the device's epoch, and its seq
is the device's last seq plus one. This module does no I/O and reads no clock; `session` and
`command_handler` do.
"""

from __future__ import annotations

import enum

from chatserver.domain.ids import Epoch, Seq


class SessionStage(enum.Enum):
    """Stage of a session."""

    NEW = "new"  # waits for `hello`
    OPENING = "opening"  # `hello` is being checked
    WELCOMED = "welcomed"  # `welcome` was sent; a snapshot may follow
    LIVE = "live"  # events are sent
    RECOVERING = "recovering"  # a snapshot is being read; events wait
    CLOSED = "closed"


class Trigger(enum.Enum):
    """Events that change the stage of a session."""

    HELLO = "hello"  # `hello` arrived, and its token is not known to be invalid
    WELCOME = "welcome"  # `welcome` was sent
    GO_LIVE = "go_live"  # delivery starts at the device's position
    RECOVER = "recover"  # the device's position is no longer valid: a snapshot is being read
    SNAPSHOT = "snapshot"  # `reset` or `too_long` was sent and gives the device a new position
    ABANDON = "abandon"  # the snapshot could not be read: the device keeps its position
    CLOSE = "close"  # `bye` was sent, or the connection was lost


TRANSITIONS = {
    (SessionStage.NEW, Trigger.HELLO): SessionStage.OPENING,
    (SessionStage.OPENING, Trigger.WELCOME): SessionStage.WELCOMED,
    (SessionStage.WELCOMED, Trigger.SNAPSHOT): SessionStage.WELCOMED,
    (SessionStage.WELCOMED, Trigger.GO_LIVE): SessionStage.LIVE,
    (SessionStage.LIVE, Trigger.RECOVER): SessionStage.RECOVERING,
    (SessionStage.LIVE, Trigger.ABANDON): SessionStage.LIVE,
    (SessionStage.RECOVERING, Trigger.SNAPSHOT): SessionStage.RECOVERING,
    (SessionStage.RECOVERING, Trigger.GO_LIVE): SessionStage.LIVE,
    (SessionStage.RECOVERING, Trigger.ABANDON): SessionStage.LIVE,
} | {(stage, Trigger.CLOSE): SessionStage.CLOSED for stage in SessionStage}


class ForbiddenTransition(Exception):
    """An event that the current stage does not allow. This is a bug in the caller."""


class Decision(enum.Enum):
    """Decision about an inbox event."""

    SEND = "send"
    DROP = "drop"  # the device already has it, or the session reads it from the inbox later
    GAP = "gap"  # an earlier event is missing: read the inbox


LIVE, SEND = (
    SessionStage.LIVE,
    Decision.SEND,
)  # for every push: globals are faster than enum attributes


class DeviceCursor:
    """The last inbox seq sent to a device (`seq`), and the highest known inbox seq (`head`).

    Within an epoch, `seq` never decreases.
    """

    __slots__ = ("epoch", "head", "seq")

    def __init__(self, epoch: Epoch, seq: Seq) -> None:
        self.epoch = epoch
        self.seq = self.head = seq

    @property
    def is_behind(self) -> bool:
        """True if the inbox has events that have not been sent to the device."""
        return self.seq < self.head


class SessionState:
    """State of one session.

    The methods with the name of a `Trigger` (`hello`, `welcome`, …) apply this event. Once the
    session has ended, they change nothing and return False.

    Raises:
        ForbiddenTransition: the current stage does not allow the event.
    """

    __slots__ = (
        "cursor",
        "is_held",
        "is_looking_up",
        "requests_pending",
        "seen_head",
        "sends_unacked",
        "stage",
    )

    def __init__(self) -> None:
        self.stage = SessionStage.NEW
        # A recovery, successful or not, replaces the cursor. A task that still has the old cursor
        # can thus detect that it is outdated.
        self.cursor = DeviceCursor(Epoch(""), Seq(0))
        self.seen_head = Seq(0)  # the newest seq that arrived while the session was not live
        self.is_held = False  # True while client frames wait
        self.is_looking_up = False  # a send waits for a Redis lookup; later frames wait, too
        self.sends_unacked = 0
        self.requests_pending = 0

    # stages

    def hello(self) -> bool:
        self.is_held = True
        return self._apply(Trigger.HELLO)

    def welcome(self, epoch: Epoch, seq: Seq) -> bool:
        """Set the position (epoch and inbox seq) from which the device continues."""
        return self._apply(Trigger.WELCOME) and self._move_to(epoch, seq)

    def snapshot(self, epoch: Epoch, seq: Seq) -> bool:
        return self._apply(Trigger.SNAPSHOT) and self._move_to(epoch, seq)

    def go_live(self, head: Seq) -> bool:
        """Start sending events. `head`: newest inbox seq when the inbox was last read."""
        if not self._apply(Trigger.GO_LIVE):
            return False
        self.cursor.head = max(self.cursor.seq, head, self.seen_head)
        self.seen_head = Seq(0)
        return True

    def recover(self) -> bool:
        if not self._apply(Trigger.RECOVER):
            return False
        self.seen_head, self.is_held = Seq(0), True
        return True

    def abandon(self) -> bool:
        """End a recovery that failed; the device keeps its position."""
        self.seen_head = Seq(0)
        return self._apply(Trigger.ABANDON) and self._move_to(self.cursor.epoch, self.cursor.seq)

    def close(self) -> bool:
        return self._apply(Trigger.CLOSE)

    def _apply(self, event: Trigger) -> bool:
        if self.stage is SessionStage.CLOSED:
            return False
        target = TRANSITIONS.get((self.stage, event))
        if target is None:
            raise ForbiddenTransition(f"{event.value} in stage {self.stage.value}")
        self.stage = target
        return True

    def _move_to(self, epoch: Epoch, seq: Seq) -> bool:
        self.cursor = DeviceCursor(epoch, seq)
        return True

    @property
    def is_open(self) -> bool:
        """True from the accepted `hello` until the session ends."""
        return self.stage is not SessionStage.NEW and self.stage is not SessionStage.CLOSED

    @property
    def is_welcomed(self) -> bool:
        """True from `welcome` until the session ends."""
        return self.is_open and self.stage is not SessionStage.OPENING

    @property
    def is_busy(self) -> bool:
        """True while a client request is unanswered."""
        return self.sends_unacked > 0 or self.requests_pending > 0

    # events for the device

    def handle_event(self, epoch: Epoch, seq: Seq) -> Decision:
        """Return how to handle inbox event `seq`; if the result is SEND, move the cursor to it."""
        if self.stage is not LIVE:
            self.seen_head = max(self.seen_head, seq)
            return Decision.DROP
        cursor = self.cursor
        if seq == cursor.seq + 1 and epoch == cursor.epoch:
            cursor.seq = seq
            if seq > cursor.head:
                cursor.head = seq
            return SEND
        if epoch != cursor.epoch:
            return Decision.GAP
        if seq <= cursor.seq:
            return Decision.DROP
        if seq > cursor.head:
            cursor.head = seq
        return Decision.GAP

    def record_head(self, seq: Seq) -> bool:
        """Record that the inbox has grown to `seq`; return True if the inbox must be read."""
        if self.stage is not LIVE:
            self.seen_head = max(self.seen_head, seq)
            return False
        if seq <= self.cursor.head:
            return False
        self.cursor.head = seq
        return True

    def is_current(self, cursor: DeviceCursor, epoch: Epoch) -> bool:
        """Return whether the session is live, with this cursor and in this epoch.

        `epoch` is the hot tier's current epoch.
        """
        return self.stage is LIVE and cursor is self.cursor and cursor.epoch == epoch

    def can_report_stored(self, epoch: Epoch) -> bool:
        """Return whether a stored seq in `epoch` can be sent to the device.

        A device in another epoch would treat lost messages as stored, and not send them again.
        """
        return self.stage in (LIVE, SessionStage.RECOVERING) and self.cursor.epoch == epoch

    # frames of the client

    def hold(self) -> None:
        """Hold client frames until `release` returns True."""
        self.is_held = True

    def release(self) -> bool:
        """Stop holding frames and return True; False if not LIVE, or if a lookup is pending."""
        if self.stage is not LIVE or self.is_looking_up:
            return False
        self.is_held = False
        return True
