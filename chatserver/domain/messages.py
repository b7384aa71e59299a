"""A message on its way: the draft, who is to get it, and who hears what became of it. No I/O."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from chatserver.domain.ids import ChatId, Epoch, Mid, Ref, Seq, Ts, UserId
from chatserver.domain.moderation import is_blocked_gate, is_ended_gate
from chatserver.errors import ChatError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Audience:
    """Members of a chat at one version of its membership.

    A hint that the commit checks: it delivers only if `gate` is still the chat's, so a stale
    audience costs a second call and never reaches a non-member (promise P7).
    """

    chat: ChatId
    epoch: Epoch
    kind: str
    name: str
    users: dict[UserId, Seq]  # member → nothing up to this seq is theirs: joined later, or rebuilt
    joined: dict[UserId, Seq]  # member → the first seq that is theirs
    top: Seq  # newest seq when this was read
    done: Seq  # up to here every inbox was served; what is between the two awaits its fan-out
    receiver_of: dict[UserId, UserId]  # direct chats: sender → the other one
    is_large: bool  # no inboxes: the log itself is read by everybody
    inline_users: tuple[UserId, ...]  # recipients whom the commit itself can serve: all, or none
    # Made and read by the hot tier alone, as parts of its command.
    gate: str  # "epoch:version" and what else it demands, where the chat must still be
    keys_packed: bytes
    keys_count: int
    args_packed: bytes
    sender_packed: dict[UserId, bytes]
    prefix_of: dict[UserId, bytes]  # sender → receiver of a direct chat, before the message
    # Seqs above which it became large (positive) or small (negative), as far as that is news.
    turns: tuple[int, ...] = ()
    retention_s: int = 0  # so long its messages live; 0: for ever

    @property
    def is_blocked(self) -> bool:
        """True of a direct chat whose users may not write to each other."""
        return is_blocked_gate(self.gate)

    @property
    def is_ended(self) -> bool:
        """Whether it is a companion's session that is only read from now on."""
        return is_ended_gate(self.gate)

    @property
    def is_turning(self) -> bool:
        """True while members have yet to be told that the chat turned large or small."""
        return any(abs(turn) > self.done for turn in self.turns)

    def inbox_spans(self, after: Seq, upto: Seq) -> list[tuple[Seq, Seq]]:
        """Return the parts of ``(after, upto]`` that belong into inboxes, as ``(from, to]``."""
        if not self.turns:
            return [] if self.is_large or upto <= after else [(after, upto)]
        spans: list[tuple[Seq, Seq]] = []
        start, turns = after, [turn for turn in self.turns if abs(turn) > after]
        is_large = turns[0] < 0 if turns else self.is_large
        for turn in [*turns, upto if self.is_large else -upto]:
            end = Seq(min(abs(turn), upto))
            if not is_large and end > start:
                spans.append((start, end))
            start, is_large = max(start, end), turn > 0
        return spans


@dataclasses.dataclass(slots=True, eq=False)
class Draft:
    """A message on its way into its chat."""

    chat: ChatId
    sender: UserId
    ref: Ref
    mid: Mid
    digest: str
    tail: bytes
    request_id: int
    is_stored_wanted: bool
    owner: CommitListener
    on_answer: OnAnswer
    number: int = 0  # rises with each draft of a process: the order in which they were taken
    loads: int = 0  # how often its chat had to be loaded for it
    made: str = ""  # digest of what a webhook made of it: the warm tier knows no other
    bare: bytes = b""  # `tail` without the end of the message
    ends: int | None = None  # seconds since 1970, as the sender wants it
    expires_at: int | None = None  # seconds since 1970; the chat's retention included
    reply_to: int | None = None
    is_system: bool = False  # from the host application: its user need not be a member


class Places(NamedTuple):
    """Where a message stands in the inboxes of `Audience.inline_users`, in turn."""

    firsts: Sequence[Seq]  # of the first message of its chat in the commit call
    offset: int  # so many further is this one
    far: Sequence[bytes | Literal[0]] | None  # other gateways of each; None: nobody has any


class OnAnswer(Protocol):
    """How a session hears of its draft: exactly one call."""

    def acked(self, draft: Draft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """The message stands at `seq`."""

    def refused(self, draft: Draft, error: ChatError) -> None:
        """It does not; or nobody knows, if the error is `Unavailable`."""


class CommitListener(Protocol):
    """What the commit tells the use case: exactly one call per draft."""

    def committed(
        self,
        draft: Draft,
        seq: Seq,
        ts: Ts,
        epoch: Epoch,
        audience: Audience,
        places: Places,
    ) -> None:
        """In every inbox, at `places`."""

    def published(
        self, draft: Draft, seq: Seq, ts: Ts, epoch: Epoch, gateways: bytes | Literal[0]
    ) -> None:
        """In the log of a large chat; `gateways`: others with sessions of it, or 0."""

    def undelivered(self, draft: Draft, seq: Seq, ts: Ts) -> None:
        """Committed, but somebody has to deliver it."""

    def known(self, draft: Draft, place: bytes) -> None:
        """The reference was used before; for `place`, see `parse_place`."""

    def chat_closed(self, draft: Draft) -> None:
        """The chat has to be opened first."""

    def not_member(self, draft: Draft) -> None:
        """The sender is not a member."""

    def failed(self, draft: Draft, error: ChatError) -> None:
        """Not committed, or unknown (`Unavailable`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class LogEntry:
    """A committed message: its place, and its JSON from ``"chat"`` on."""

    seq: Seq
    ts: Ts
    tail: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class ChatHead:
    """Where a chat stands in the hot tier."""

    seq: Seq
    is_open: bool  # usable in the present epoch
    stored: int = 0  # up to where the warm tier has it


_ANY_EXPIRY = "f" * 8  # longer than any message lives


def digest_of(
    kind: str,
    body: str,
    reply_to: int | None,
    attachments: Sequence[str] = (),
    expires_s: int | None = None,
) -> str:
    """Return the digest that tells whether two sends under one reference say the same.

    It covers everything that the client chose of the message; `durability` is of the ack. A
    checksum, not a secret: it protects clients from their own mistakes, at a tenth of a hash.
    """
    if attachments:
        kind = f"{kind}:{','.join(attachments)}"  # ids: no comma and no colon in them
    content = zlib.crc32(f"{kind}:{reply_to}:{body}".encode())
    return f"{content:08x}{expires_s:08x}" if expires_s else f"{content:08x}"


def stored_digest_of(
    kind: str, body: str, reply_to: int | None, attachments: Sequence[str], *, expires: bool
) -> str:
    """Return the digest of a stored message, of which the chosen `expires_s` is not known."""
    digest = digest_of(kind, body, reply_to, attachments)
    return digest + _ANY_EXPIRY if expires else digest


def is_same_send(known: str, given: str) -> bool:
    """Return whether a send repeats the known one; an empty digest (text gone) matches any."""
    if known.endswith(_ANY_EXPIRY):
        return known[:8] == given[:8]
    return known in ("", given)


def format_name(mid: str, digest: str) -> bytes:
    """Return the part of a place that is known before the commit; `digest` is hexadecimal."""
    packed = bytes.fromhex(digest)
    return b"%c%b%b" % (len(packed), packed, mid.encode())


def format_place(seq: int, ts: int, mid: str, digest: str) -> bytes:
    """Return what is remembered of a message under its reference, in few bytes.

    Five bytes of seq, seven of ts (as ``struct.pack('>I5I7')`` of Redis's Lua makes them), then
    `format_name`.
    """
    return seq.to_bytes(5) + ts.to_bytes(7) + format_name(mid, digest)


def parse_place(place: bytes) -> tuple[Seq, Ts, str, str]:
    """Return seq, ts, mid and digest of `format_place`."""
    end = 13 + place[12]
    seq, ts = int.from_bytes(place[:5]), int.from_bytes(place[5:12])
    return Seq(seq), Ts(ts), place[end:].decode(), place[13:end].hex()


def generation_phase(chat: str) -> int:
    """Return by how many seconds a chat's generations of references begin earlier.

    Any number will do: it keeps old generations from expiring in all chats at the same moment.
    """
    return zlib.crc32(chat.encode())


def reference_key(sender: str, ref: str) -> bytes:
    """Return what a sender's reference is filed under in its chat: ten bytes of a hash."""
    return hashlib.blake2b(f"{sender}:{ref}".encode(), digest_size=10).digest()
