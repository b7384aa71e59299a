"""What the clients of a run saw and did, as a flat list that the checker judges offline.

One test process makes all observations, in order, stamped by one monotonic clock; so "before"
means before for everybody. A run ends with what was read after everything healed: each member's
whole history (`FinalHistory`) and the rows of the warm tier (`WarmRows`).
"""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True):
    """A message as somebody saw it."""

    chat: str
    seq: int
    ts: int
    mid: str
    sender: str
    ref: str
    body: str


class Observation(msgspec.Struct, frozen=True, tag_field="what"):
    """Something a client saw or did, at `t` seconds of the run's one clock."""

    t: float


class Sent(Observation, tag="sent", frozen=True):
    """A try of a message left the client. Tries of one message share the `ref`."""

    user: str
    device: str
    conn: int
    chat: str
    ref: str
    body: str


class Acked(Observation, tag="acked", frozen=True):
    """The server committed the message; `dup` says that an earlier try had."""

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
        """The message that this ack is about."""
        return Row(self.chat, self.seq, self.ts, self.mid, self.user, self.ref, self.body)


class Refused(Observation, tag="refused", frozen=True):
    """The server answered a try with an error."""

    user: str
    conn: int
    chat: str
    ref: str
    code: str


class Started(Observation, tag="started", frozen=True):
    """A device begins to follow its inbox after `seq` of `epoch`.

    `tops` is the snapshot of a `reset` or `too_long`: what the device reads from history instead
    of being shown. A device that resumes by cursor does not start again.
    """

    user: str
    device: str
    epoch: str
    seq: int
    tops: dict[str, int] | None = None


class Pushed(Observation, tag="pushed", frozen=True):
    """A device was sent an event; `row` if it was a message."""

    user: str
    device: str
    epoch: str
    seq: int
    chat: str
    row: Row | None = None


class Marked(Observation, tag="marked", frozen=True):
    """A device learned how far a member, `of`, has read and received a chat."""

    user: str
    device: str
    chat: str
    of: str
    read: int
    received: int


class Signalled(Observation, tag="signalled", frozen=True):
    """A device was told something of the moment about a chat."""

    user: str
    chat: str
    sender: str


class PageRead(Observation, tag="page", frozen=True):
    """A history page, asked for at `asked`, came at `t`."""

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
    """The observations of one run and who was a member of what, throughout."""

    members: dict[str, set[str]]
    seen: list[AnyObservation] = []


def dump_run(run: Run) -> bytes:
    """Return the run as JSON lines, members first, for a look after a failure."""
    lines = [msgspec.json.encode(run.members)]
    lines += [msgspec.json.encode(observation) for observation in run.seen]
    return b"\n".join(lines) + b"\n"


def load_run(data: bytes) -> Run:
    """Return the run that `dump_run` wrote."""
    head, *rest = data.splitlines()
    decoder = msgspec.json.Decoder(AnyObservation)
    members = msgspec.json.decode(head, type=dict[str, set[str]])
    return Run(members, [decoder.decode(line) for line in rest])
