"""Messages being sent: the draft, its audience, and the outcome of its commit. No I/O."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Sequence
from typing import Literal, Protocol, final

from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.ids import ChatId, Epoch, Mid, Ref, Seq, Ts, UserId
from chatserver.domain.write_restrictions import is_chat_blocked, is_session_ended
from chatserver.errors import ChatError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Audience:
    """Members of a chat at one version of its membership.

    An audience may be outdated. The commit compares its `gate` (chat version and write policy) with
    the chat's current `gate`, so a message never reaches a non-member (guarantee P7).
    """

    chat: ChatId
    epoch: Epoch
    kind: str
    name: str
    users: dict[UserId, Seq]  # recipient → the seq above which entries belong in the inbox
    joined: dict[UserId, Seq]  # member → the first seq they may read
    top: Seq  # newest seq when the audience was read
    done: Seq  # all inboxes have the entries up to this seq
    receiver_of: dict[UserId, UserId]  # direct chats: sender → receiver
    is_large: bool  # True if members read the log instead of inboxes
    # The commit script appends to the inboxes of these users: all of `users`, or none.
    inline_users: tuple[UserId, ...]
    # Arguments of the commit script, from `gate` to `prefix_of`.
    gate: str  # the chat's "epoch:version" and write policy when the audience was read
    keys_packed: bytes
    keys_count: int
    args_packed: bytes
    sender_packed: dict[UserId, bytes]
    prefix_of: dict[UserId, bytes]  # sender → "<receiver>\n", for a direct chat
    # Seqs of large-chat transitions: positive if the chat became large after this seq, negative if
    # it became small. They are kept until all members have been notified.
    transitions: tuple[int, ...] = ()
    retention_s: int = 0  # lifetime of the chat's messages; 0: unlimited
    picture: str = ""  # file id of a group's picture

    @property
    def is_blocked(self) -> bool:
        """True for a direct chat in which a block prevents messages."""
        return is_chat_blocked(self.gate)

    @property
    def is_ended(self) -> bool:
        """True for a companion session that has ended and is read-only."""
        return is_session_ended(self.gate)

    @property
    def is_in_transition(self) -> bool:
        """True until all members have been notified that the chat has become large or small."""
        return any(abs(seq) > self.done for seq in self.transitions)

    def inbox_spans(self, after: Seq, upto: Seq) -> list[tuple[Seq, Seq]]:
        """Return the seq ranges ``(from, to]`` within ``(after, upto]`` that belong in inboxes."""
        if not self.transitions:
            return [] if self.is_large or upto <= after else [(after, upto)]
        spans: list[tuple[Seq, Seq]] = []
        start, later = after, [seq for seq in self.transitions if abs(seq) > after]
        is_large = later[0] < 0 if later else self.is_large
        for transition in [*later, upto if self.is_large else -upto]:
            end = Seq(min(abs(transition), upto))
            if not is_large and end > start:
                spans.append((start, end))
            start, is_large = max(start, end), transition > 0
        return spans


class PendingDraft:
    """A message that is being committed to its chat.

    `number` increases with each draft that the process accepts.
    """

    # Not a dataclass, because a compiled dataclass has an interpreted `__init__`.
    __slots__ = (
        "changed_digest",
        "chat",
        "digest",
        "expires_at",
        "is_stored_wanted",
        "is_system",
        "listener",
        "load_count",
        "mid",
        "number",
        "ref",
        "reply_to",
        "request_id",
        "requested_expiry",
        "sender",
        "tail",
        "tail_without_expiry",
    )  # fmt: skip

    def __init__(
        self,
        *,
        chat: ChatId,
        sender: UserId,
        ref: Ref,
        mid: Mid,
        digest: str,
        tail: bytes,
        request_id: int,
        is_stored_wanted: bool,
        listener: SendListener,
        number: int = 0,
        reply_to: int | None = None,
        requested_expiry: int | None = None,
        changed_digest: str = "",
        is_system: bool = False,
    ) -> None:
        self.chat = chat
        self.sender = sender
        self.ref = ref
        self.mid = mid
        self.digest = digest
        # Digest with the body as changed by a webhook. The warm tier does not have the original
        # body, so a retry is compared with this digest, too.
        self.changed_digest = changed_digest
        self.request_id = request_id
        self.is_stored_wanted = is_stored_wanted
        self.listener = listener
        self.number = number
        self.reply_to = reply_to
        # True if the host application sends the message: the sender need not be a member.
        self.is_system = is_system
        self.tail_without_expiry = tail
        self.requested_expiry = requested_expiry  # expiry requested by the sender, s since 1970
        # Set for each commit, because the retention of the chat may have changed.
        self.tail = tail  # `tail_without_expiry` with `expires_at`
        self.expires_at: int | None = None  # expiry by request or retention, s since 1970
        self.load_count = 0  # how often the chat was loaded for this draft


class InboxPositions:
    """Seqs of a message in the inboxes of `Audience.inline_users`, in the same order.

    `firsts` has, for each user, the inbox seq of the chat's first message in the commit call.
    `offset` is the number of the chat's messages before this one in that call. `remote_gateways`
    has, for each user, the gateways other than this one, comma separated, or 0 if there are none.
    `remote_gateways` is None if no user is on another gateway.
    """

    __slots__ = ("firsts", "offset", "remote_gateways")

    def __init__(
        self,
        firsts: Sequence[Seq],
        offset: int,
        remote_gateways: Sequence[bytes | Literal[0]] | None,
    ) -> None:
        self.firsts = firsts
        self.offset = offset
        self.remote_gateways = remote_gateways


class SendListener(Protocol):
    """Callbacks of the session for the outcome of a draft; exactly one is called."""

    def get_caller(self) -> RequestCaller:
        """Return the user who sends the message."""

    def on_acked(self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """The message was committed at `seq`."""

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        """The message was refused; if `error` is Unavailable, it may have been committed."""


# The outcome of a commit. Like `PendingDraft`, not dataclasses: one is created for each message.


@final
class InboxCommit:
    """The message was committed and appended to the inboxes of `users`, at `positions`."""

    __slots__ = ("epoch", "positions", "seq", "ts", "users")

    def __init__(
        self, seq: Seq, ts: Ts, epoch: Epoch, users: Sequence[UserId], positions: InboxPositions
    ) -> None:
        self.seq = seq
        self.ts = ts
        self.epoch = epoch
        self.users = users
        self.positions = positions


@final
class LargeChatCommit:
    """The message was committed to the log of a large chat.

    `gateways`: the other gateways that are subscribed, comma separated; 0 if there are none.
    """

    __slots__ = ("epoch", "gateways", "seq", "ts")

    def __init__(self, seq: Seq, ts: Ts, epoch: Epoch, gateways: bytes | Literal[0]) -> None:
        self.seq = seq
        self.ts = ts
        self.epoch = epoch
        self.gateways = gateways


@final
class UndeliveredCommit:
    """The message was committed, but not yet appended to the inboxes."""

    __slots__ = ("seq", "ts")

    def __init__(self, seq: Seq, ts: Ts) -> None:
        self.seq = seq
        self.ts = ts


@final
class DuplicateSend:
    """The `ref` has been used before, for the message in `record` (see `parse_ref_record`)."""

    __slots__ = ("record",)

    def __init__(self, record: bytes) -> None:
        self.record = record


@final
class ChatNotLoaded:
    """The chat is not loaded in Redis, or its retention has changed: the audience is outdated."""

    __slots__ = ()


@final
class SenderNotMember:
    """The sender is not a member of the chat."""

    __slots__ = ()


@final
class CommitRefused:
    """The message was refused; if `error` is Unavailable, it may have been committed."""

    __slots__ = ("error",)

    def __init__(self, error: ChatError) -> None:
        self.error = error


CommitOutcome = (
    InboxCommit
    | LargeChatCommit
    | UndeliveredCommit
    | DuplicateSend
    | ChatNotLoaded
    | SenderNotMember
    | CommitRefused
)


@dataclasses.dataclass(frozen=True, slots=True)
class LogEntry:
    """A committed entry of a chat. `tail` is its JSON, from ``"chat"`` to the end."""

    seq: Seq
    ts: Ts
    tail: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class ChatHead:
    """A chat in the hot tier. `seq` is its newest seq."""

    seq: Seq
    is_open: bool  # True if the chat is loaded in the current epoch
    stored: int = 0  # seq up to which the warm tier has the entries


# Replaces `expires_s` in the digest of a stored message, because only the expiry time is stored.
# Larger than any valid value.
_ANY_EXPIRY = "f" * 8


def compute_digest(
    kind: str,
    body: str,
    reply_to: int | None,
    attachments: Sequence[str] = (),
    expires_s: int | None = None,
) -> str:
    """Return a checksum of a message, to detect a `ref` that is reused for another message.

    It covers every field that the client chooses, except `durability`.
    """
    if attachments:
        kind = f"{kind}:{','.join(attachments)}"  # unambiguous: ids contain no comma and no colon
    content = zlib.crc32(f"{kind}:{reply_to}:{body}".encode())
    return f"{content:08x}{expires_s:08x}" if expires_s else f"{content:08x}"


def compute_stored_digest(
    kind: str, body: str, reply_to: int | None, attachments: Sequence[str], *, expires: bool
) -> str:
    """Return the digest of a stored message, whose requested `expires_s` is unknown."""
    digest = compute_digest(kind, body, reply_to, attachments)
    return digest + _ANY_EXPIRY if expires else digest


def is_same_send(stored: str, digest: str) -> bool:
    """Return whether two digests match; an empty `stored` (deleted text) matches any digest."""
    if stored.endswith(_ANY_EXPIRY):
        return stored[:8] == digest[:8]
    return stored in ("", digest)


def format_name(mid: str, digest: str) -> bytes:
    """Return the end of a `format_ref_record` record: the part that is known before the commit."""
    packed = bytes.fromhex(digest)
    return b"%c%b%b" % (len(packed), packed, mid.encode())


def format_ref_record(seq: int, ts: int, mid: str, digest: str) -> bytes:
    """Return the record that Redis stores for a message under its `ref`.

    The record has five bytes of seq, seven bytes of ts (``struct.pack('>I5I7')`` in Lua), and the
    result of `format_name`.
    """
    return seq.to_bytes(5) + ts.to_bytes(7) + format_name(mid, digest)


def parse_ref_record(record: bytes) -> tuple[Seq, Ts, str, str]:
    """Return `(seq, ts, mid, digest)` from a `format_ref_record` record."""
    end = 13 + record[12]
    seq, ts = int.from_bytes(record[:5]), int.from_bytes(record[5:12])
    return Seq(seq), Ts(ts), record[end:].decode(), record[13:end].hex()


REF_TTL_S = 86_400  # the server recognizes a retry of a send for at least this long


def reference_key(sender: str, ref: str) -> bytes:
    """Return the name of the Redis hash field for a sender's `ref`: "#" and ten bytes of digest."""
    return b"#" + hashlib.blake2b(f"{sender}:{ref}".encode(), digest_size=10).digest()
