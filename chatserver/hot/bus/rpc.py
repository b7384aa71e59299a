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

GROUP = "rpc"  # consumer group of all `rpc` workers


class RpcOperation(msgspec.Struct, tag_field="op"):
    """Base class of operations on the warm tier."""


class LoadUser(RpcOperation, tag="load_user"):
    """Create the user in the `directory` table if missing, and load the user state into Redis."""

    user: str


class LoadKeys(RpcOperation, tag="load_keys"):
    """Return the host application's key set, for token verification; fetch it if necessary."""


class LoadChat(RpcOperation, tag="load_chat"):
    """Load a chat into the hot tier. NotFound: the chat does not exist."""

    chat: str


class OpenDirectChat(RpcOperation, tag="open_direct"):
    """Return two users' direct chat; create it if missing. NotFound: `other` does not exist."""

    user: str
    other: str
    is_host: bool = False


class CreateGroupChat(RpcOperation, tag="create_chat"):
    """Create a group. NotFound: a member does not exist; the error names the member."""

    user: str
    ref: str
    members: list[str]
    name: str | None
    is_host: bool = False


Priority = Literal["protective", "normal", "bulk"]


class ForwardFrame(RpcOperation, tag="frame"):
    """Handle a frame of a user; return the encoded reply. See `chatserver.requests.registry`."""

    user: str
    name: str  # the type of the frame
    priority: Priority
    frame: msgspec.Raw  # MessagePack


class ReadHistory(RpcOperation, tag="history"):
    """Return contiguous warm-tier messages below seq `before` or above `after`, ascending."""

    chat: str
    before: int | None
    after: int | None
    limit: int
    ts: int | None


class FindPeriods(RpcOperation, tag="periods"):
    """Return a user's earlier membership periods; see `chatserver.domain.membership_periods`."""

    chat: str
    user: str


class CallBeforeSend(RpcOperation, tag="ask"):
    """Call the `before_send` webhook. These calls have their own stream and workers."""

    question: hooks.BeforeSend


class LoadFile(RpcOperation, tag="load_file"):
    """Return a file's item in the `directory` table; empty if there is none."""

    file: str


AnyOperation = (
    LoadUser
    | LoadKeys
    | LoadChat
    | OpenDirectChat
    | CreateGroupChat
    | ForwardFrame
    | ReadHistory
    | FindPeriods
    | LoadFile
    | CallBeforeSend
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
    """Return the user whose text the call may contain, or None."""
    try:
        call = decode_call(payload)
    except msgspec.MsgspecError:
        return None
    match call.operation:
        case CallBeforeSend():
            return call.operation.question.sender
        case ForwardFrame() | CreateGroupChat():
            return call.operation.user
        case _:
            return None


def is_protective(operation: AnyOperation) -> bool:
    """Return whether an operation protects a user, so that it must not wait for others."""
    return isinstance(operation, ForwardFrame) and operation.priority == "protective"


def get_name(operation: AnyOperation) -> str:
    """Return the name of an operation, for logs."""
    if isinstance(operation, ForwardFrame):
        return operation.name
    return str(operation.__struct_config__.tag)


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
