"""Remote procedure calls from gateways to warm-tier workers: operations, results and encoding.

A gateway does not use the AWS client, because a query would block its event loop for 2 ms. Instead,
it sends the call through Redis (`rpc_client`). `workers.rpc` reads the call (`rpc_queue`), executes
it and sends the result to the gateway's stream. A worker receives each call at most once. The
caller has a deadline and can retry, so every operation is idempotent.

A call has a time budget instead of an absolute deadline, because the clocks of two machines differ.
The age of a call is the Redis time minus the time in its entry id, which also comes from Redis.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chatserver.domain.access.caller import CALLER
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as hooks
from chatserver.protocol.redis_memory_costs import PROTECTIVE

GROUP = "rpc"  # consumer group of all `rpc` workers


class Operation(msgspec.Struct, tag_field="op"):
    """Base class of operations on the warm tier."""


class LoadUser(Operation, tag="load_user"):
    """Create the user in the `directory` table if missing, and load the user state into Redis."""

    user: str


class LoadKeys(Operation, tag="load_keys"):
    """Return the host application's key set, for token verification; fetch it if necessary."""


class LoadChat(Operation, tag="load_chat"):
    """Load a chat into the hot tier. NotFound: the chat does not exist."""

    chat: str


class OpenDirect(Operation, tag="open_direct"):
    """Return two users' direct chat; create it if missing. NotFound: `other` does not exist."""

    user: str
    other: str
    is_host: bool = False


class CreateChat(Operation, tag="create_chat"):
    """Create a group. NotFound: a member does not exist; the error names the member."""

    user: str
    ref: str
    members: list[str]
    name: str | None
    is_host: bool = False


class ChangeChat(Operation, tag="change_chat"):
    """Change the members or settings of a group; see `service.membership.group_membership`."""

    user: str
    change: frames.AnyChange


class ReadHistory(Operation, tag="history"):
    """Return contiguous warm-tier messages below seq `before` or above `after`, ascending."""

    chat: str
    before: int | None
    after: int | None
    limit: int
    ts: int | None


class FindPeriods(Operation, tag="periods"):
    """Return a user's earlier membership periods; see `chatserver.domain.membership_periods`."""

    chat: str
    user: str


class Block(Operation, tag="block"):
    """Block or unblock another user. NotFound: the other user does not exist."""

    user: str
    other: str
    is_blocked: bool


class ListBlocks(Operation, tag="list_blocks"):
    """Return the users that a user has blocked, sorted by id."""

    user: str
    after: str | None
    limit: int


class Report(Operation, tag="report"):
    """Store a user's report of a message."""

    user: str
    chat: str
    seq: int
    reason: str


class ListCompanions(Operation, tag="list_companions"):
    """Return the available companions, sorted by id."""

    after: str | None
    limit: int


class BeginSession(Operation, tag="begin_session"):
    """Start a companion session. If `is_renewal`, it replaces the active session."""

    user: str
    companion: str
    ref: str
    is_renewal: bool = False


class GetSession(Operation, tag="get_session"):
    """Return the user's active session with a companion. NotFound: there is none."""

    user: str
    companion: str


class EndSession(Operation, tag="end_session"):
    """End the companion session in chat `chat`, or the active one if `chat` is None.

    If `forget`, this also deletes the companion's memory entries from the session.
    """

    user: str
    companion: str
    chat: str | None
    forget: bool = False


class MoveSession(Operation, tag="move_session"):
    """Move a companion session to another version of the companion."""

    user: str
    chat: str
    version: int | None


class ListSessions(Operation, tag="list_sessions"):
    """Return one page of a user's companion sessions."""

    user: str
    companion: str | None
    after: str | None
    limit: int


class ListInvitations(Operation, tag="list_invitations"):
    """Return one page of a user's pending invitations."""

    user: str
    after: str | None
    limit: int


class DeclineInvitation(Operation, tag="decline_invitation"):
    """Decline an invitation."""

    user: str
    chat: str


class CallBeforeSend(Operation, tag="ask"):
    """Call the `before_send` webhook. These calls have their own stream and workers."""

    question: hooks.BeforeSend


class LoadFile(Operation, tag="load_file"):
    """Return a file's item in the `directory` table; empty if there is none."""

    file: str


class FindMessages(Operation, tag="find_messages"):
    """Search messages. These calls have their own stream and workers."""

    user: str
    query: frames.Search


CompanionCall = ListCompanions | BeginSession | GetSession | EndSession | MoveSession | ListSessions

AnyOperation = (
    LoadUser
    | LoadKeys
    | LoadChat
    | OpenDirect
    | CreateChat
    | ChangeChat
    | ReadHistory
    | FindPeriods
    | LoadFile
    | Block
    | ListBlocks
    | Report
    | CompanionCall
    | ListInvitations
    | DeclineInvitation
    | CallBeforeSend
    | FindMessages
)


class CallHead(msgspec.Struct):
    """Header of a call. Workers of other versions can also decode it.

    Calls are queued round-robin by `queue_key` (`chatserver.service.fair_semaphore`).
    """

    id: str
    gateway: str
    queue_key: str


class Call(CallHead):
    """An operation, its caller, and the call's time budget."""

    budget_ms: int
    operation: AnyOperation


class HistoryRun(msgspec.Struct):
    """Contiguous messages in ascending seq, and the coldest tier that they were read from."""

    messages: list[frames.Message]
    tier: Literal["warm", "cold"] = "warm"


class CompanionsPage(msgspec.Struct):
    """Result of `ListCompanions`."""

    companions: list[frames.CompanionInfo]
    next: str | None


class SessionsPage(msgspec.Struct):
    """Result of `ListSessions`."""

    sessions: list[frames.SessionInfo]
    next: str | None


class OpenedSession(msgspec.Struct):
    """Result of an operation on one companion session.

    `BeginSession` and `GetSession` set `chat`.
    """

    session: frames.SessionInfo
    chat: frames.ChatInfo | None = None


class InvitationsPage(msgspec.Struct):
    """Result of `ListInvitations`."""

    invitations: list[frames.InvitationInfo]
    next: str | None


class SearchResultsPage(msgspec.Struct):
    """Result of `FindMessages`; each of `results` is a `frames.SearchResult` as JSON."""

    results: list[bytes]
    next: str | None


class BlocksPage(msgspec.Struct):
    """Result of `ListBlocks`."""

    blocked: list[frames.BlockedUser]
    next: str | None


_encoder = msgspec.msgpack.Encoder()
_call_decoder = msgspec.msgpack.Decoder(Call)
_head_decoder = msgspec.msgpack.Decoder(CallHead)


def encode_call(call: Call) -> bytes:
    return _encoder.encode(call)


def decode_call(payload: bytes) -> Call:
    """Decode a call.

    Raises:
        msgspec.MsgspecError: the call is from another version, or invalid.
    """
    return _call_decoder.decode(payload)


def decode_head(payload: bytes) -> CallHead:
    """Decode only the header, for a call that `decode_call` rejects.

    Raises:
        msgspec.MsgspecError: the header is also invalid.
    """
    return _head_decoder.decode(payload)


def find_author(payload: bytes) -> str | None:
    """Return the user whose text the call contains, or None."""
    try:
        call = decode_call(payload)
    except msgspec.MsgspecError:
        return None
    match call.operation:
        case CallBeforeSend():
            return call.operation.question.sender
        case Report() | FindMessages():
            return call.operation.user
        case _:
            return None


def is_protective(operation: AnyOperation) -> bool:
    """Return whether an operation protects a user, so that it must not wait for others."""
    if isinstance(operation, ChangeChat):
        return isinstance(operation.change, PROTECTIVE)
    return isinstance(operation, Block | Report | DeclineInvitation)


def get_queue_key(operation: AnyOperation) -> str:
    """Return the key by which an operation is queued round-robin.

    This is the key of the caller whose request is being processed; if there is none, the
    operation's user or chat. An operation that protects a user has the user's own key, so that it
    does not wait for new accounts of the same network.
    """
    if isinstance(operation, CallBeforeSend):
        return operation.question.sender
    named = getattr(operation, "user", "") or getattr(operation, "chat", "")
    if is_protective(operation):
        return str(named)
    return CALLER.get().queue_key or str(named)
