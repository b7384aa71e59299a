"""Observations of the clients of a run, as a flat list for the offline checker.

One test process makes all observations, with timestamps of one monotonic clock, so they have a
total order. A run ends with the state after recovery: each member's whole history
(`FinalHistory`) and the rows of the warm tier (`WarmRows`).
"""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True):
    """A message as observed by a client."""

    chat: str
    seq: int
    ts: int
    mid: str
    sender: str
    ref: str
    body: str


class Observation(msgspec.Struct, frozen=True, tag_field="what"):
    """An event observed by a client, at `t` seconds of the run's clock."""

    t: float


class Sent(Observation, tag="sent", frozen=True):
    """A client sent a message. All attempts to send one message share the `ref`."""

    user: str
    device: str
    conn: int
    chat: str
    ref: str
    body: str


class Acked(Observation, tag="acked", frozen=True):
    """The server committed the message; `dup` means that an earlier attempt was committed."""

    user: str
    device: str
    conn: int
    chat: str
    ref: str
    body: str
    seq: int
    ts: int
    mid: str
    dup: bool

    @property
    def row(self) -> Row:
        """The acked message."""
        return Row(self.chat, self.seq, self.ts, self.mid, self.user, self.ref, self.body)


class Refused(Observation, tag="refused", frozen=True):
    """The server responded to an attempt with an error."""

    user: str
    conn: int
    chat: str
    ref: str
    code: str


class Started(Observation, tag="started", frozen=True):
    """A device starts to follow its inbox after `seq` of `epoch`.

    `tops` is the snapshot of a `reset` or `too_long`: the device reads entries up to there from
    history instead of receiving them. A device that resumes by cursor does not start again.
    """

    user: str
    device: str
    epoch: str
    seq: int
    tops: dict[str, int] | None = None


class Pushed(Observation, tag="pushed", frozen=True):
    """A device received an event; `row` if it was a message."""

    user: str
    device: str
    epoch: str
    seq: int
    chat: str
    row: Row | None = None


class Marked(Observation, tag="marked", frozen=True):
    """A device received the read and received marks of the member `of`."""

    user: str
    device: str
    chat: str
    of: str
    read: int
    received: int


class Signalled(Observation, tag="signalled", frozen=True):
    """A device received an ephemeral signal about a chat."""

    user: str
    chat: str
    sender: str


class PageRead(Observation, tag="page", frozen=True):
    """A history page that was requested at `asked` arrived at `t`."""

    asked: float
    user: str
    chat: str
    before: int | None
    after: int | None
    more: bool
    tier: str
    rows: tuple[Row, ...]


class Listed(Observation, tag="listed", frozen=True):
    """A line of a user's chat list, read after quiescence."""

    user: str
    chat: str
    top: int
    read: int
    unread: int


class FinalHistory(Observation, tag="final", frozen=True):
    """A member's whole history of a chat, read after quiescence, page by page."""

    user: str
    chat: str
    rows: tuple[Row, ...]


class WarmRows(Observation, tag="warm", frozen=True):
    """All rows of a chat in the warm tier, read after quiescence from the database itself."""

    chat: str
    rows: tuple[Row, ...]


AnyObservation = (
    Sent
    | Acked
    | Refused
    | Started
    | Pushed
    | Marked
    | Signalled
    | PageRead
    | Listed
    | FinalHistory
    | WarmRows
)


class Run(msgspec.Struct):
    """The observations of one run, and the constant members of each chat."""

    members: dict[str, set[str]]
    seen: list[AnyObservation] = []


def dump_run(run: Run) -> bytes:
    """Encode the run as JSON lines, members first, to analyze a failure."""
    lines = [msgspec.json.encode(run.members)]
    lines += [msgspec.json.encode(observation) for observation in run.seen]
    return b"\n".join(lines) + b"\n"


def load_run(data: bytes) -> Run:
    """Decode a run encoded by `dump_run`."""
    head, *rest = data.splitlines()
    decoder = msgspec.json.Decoder(AnyObservation)
    members = msgspec.json.decode(head, type=dict[str, set[str]])
    return Run(members, [decoder.decode(line) for line in rest])
