"""Frame codec. Frames that are encoded for every message are assembled by hand.

The gateway that accepts a message encodes its JSON once, without the two fields that the commit
assigns. `encode_message_tail` returns ``"chat":…,"body":…}``, the tail that the log and the backlog
store. `join_message` prepends ``{"seq":…,"ts":…,``. `encode_event_body` and `join_event` build the
event for one inbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from chatserver.errors import BadRequest, ChatError
from chatserver.protocol import frames

_encoder = msgspec.json.Encoder()
_message_decoder = msgspec.json.Decoder(frames.Message)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
PATH_CHARS_MAX = 100
encode = _encoder.encode


ClientDecoder = msgspec.json.Decoder[frames.ClientFrame]


class NotJson(BadRequest):
    """The bytes are not valid JSON. The gateway closes the connection."""


def decode_client_frame(data: bytes, decoder: ClientDecoder) -> frames.ClientFrame:
    """Decode a client frame; `decoder` is that of the declared requests.

    Raises:
        NotJson: `data` is not one JSON object in UTF-8.
        BadRequest: the object is not a valid frame; the message names the field and the limit.
    """
    try:
        frame: frames.ClientFrame = decoder.decode(data)
    except msgspec.ValidationError as exc:
        raise BadRequest(format_validation_error(str(exc))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        _check_surrogates(data)
        raise NotJson(f"frame: not valid JSON: {exc}") from None
    return frame


def _check_surrogates(data: bytes) -> None:
    """Check whether JSON that msgspec rejected has an escaped lone surrogate, like ``"\\ud83d"``.

    Such JSON is valid (RFC 8259 section 8.2), but msgspec reports it as invalid.

    Raises:
        BadRequest: the JSON has a lone surrogate; the message names the field.
    """
    path = _find_surrogate(_parse_with_surrogates(data))
    if path is not None:
        raise BadRequest(f"{path.lstrip('.') or 'frame'}: contains a lone surrogate")


def _parse_with_surrogates(data: bytes) -> Any:
    """Parse JSON with lone surrogates, which the standard library allows; None for other data."""
    if b"\\u" not in data:
        return None
    try:
        return json.loads(data.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _find_surrogate(value: Any, path: str = "") -> str | None:
    """Return the path of a string or object key that has a lone surrogate, or None."""
    match value:
        case str():
            return path if _SURROGATE.search(value) else None
        case list():
            inner = iter([(element, path) for element in value])
        case dict():
            if any(map(_SURROGATE.search, value)):
                return path
            inner = iter(
                [(element, f"{path}.{key}"[:PATH_CHARS_MAX]) for key, element in value.items()]
            )
        case _:
            return None
    return next(
        (inner_path for pair in inner if (inner_path := _find_surrogate(*pair)) is not None), None
    )


def format_validation_error(text: str) -> str:
    """Convert msgspec's "Expected … - at `$.field`" to "field: expected …", and truncate it."""
    detail, _, path = text.rpartition(" - at `")
    if not detail:
        detail, path = text, ""
    path = path.removeprefix("key` in `")  # msgspec adds this prefix if an object key is invalid
    field = path.rstrip("`").removeprefix("$.").removeprefix("$") or "frame"
    if detail.startswith(("Invalid value", "Invalid enum value")):
        detail = _ALLOWED.get(
            field, "not one of the allowed values"
        )  # never echo the client's input
    for part, words in _PATTERNS:
        if part in detail:
            detail = words
    return f"{field}: {detail[:1].lower()}{detail[1:]}"[:300]


_ALLOWED = {
    "type": "unknown frame type",
    "v": "must be 1",
    "state": "must be fg or bg",
    "durability": "must be hot or stored",
    "for": "must be all or me",
}
_PATTERNS = (
    ("matching regex '^[A-Za", "expected 1 to 64 characters of A-Z a-z 0-9 _ -"),
    ("matching regex '^[0-9]", "expected the `next` value of an earlier page"),
    (
        "matching regex '^(?!(?:edit",
        "expected a lower-case word of at most 32 characters, other than "
        + ", ".join(frames.RESERVED_KINDS),
    ),
)


class _OnlyId(msgspec.Struct):
    id: frames.RequestId


_id_decoder = msgspec.json.Decoder(_OnlyId)


def find_request_id(data: bytes) -> int | None:
    """Return the request id of a frame that could not be decoded, or None."""
    try:
        return _id_decoder.decode(data).id
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(_parse_with_surrogates(data), _OnlyId).id
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


class _OnlyRef(msgspec.Struct):
    ref: frames.Id


_ref_decoder = msgspec.json.Decoder(_OnlyRef)


def find_ref(data: bytes) -> str | None:
    """Return the `ref` of a rejected frame; None if it has no valid one."""
    try:
        return _ref_decoder.decode(data).ref
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class NamedSend(msgspec.Struct, tag_field="type", tag="send"):
    """A send's chat and `ref`, read without decoding the other fields."""

    chat: frames.Id
    ref: frames.Id


_send_decoder = msgspec.json.Decoder(NamedSend)


def find_send(data: bytes) -> NamedSend | None:
    """Return the chat and `ref` of a rejected send; None if the frame is not a send."""
    try:
        return _send_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def encode_message_tail(
    chat: str,
    mid: str,
    sender: str,
    ref: str,
    kind: str,
    body: str,
    reply_to: int | None,
    expires_at: int | None = None,
    attachments: Sequence[frames.Attachment] = (),
    ai: frames.Ai | None = None,
) -> bytes:
    """Return a message's JSON from ``"chat"`` on, for `join_message` to complete."""
    # All fields but the body are ids or match a restricted pattern, so they need no escaping.
    tail = (
        f'"chat":"{chat}","mid":"{mid}","sender":"{sender}","ref":"{ref}","kind":"{kind}","body":'
    ).encode() + encode(body)
    if reply_to is not None:
        tail += b',"reply_to":%d' % reply_to
    if attachments:
        tail += b',"attachments":' + encode(attachments)
    if ai is not None:
        tail += b',"ai":' + encode(ai)
    tail += b"}"
    return tail if expires_at is None else add_expiry(tail, expires_at)


def add_expiry(tail: bytes, expires_at: int) -> bytes:
    """Return `tail` (see `encode_message_tail`) with `expires_at` (Unix seconds) added."""
    return b'%b,"expires_at":%d}' % (tail[:-1], expires_at)


def encode_tail(message: frames.Message) -> bytes:
    """Return a committed message's JSON without `seq` and `ts`, which `join_message` adds."""
    return encode(message).removeprefix(join_message(message.seq, message.ts, b""))


def encode_entry_tail(
    chat: str, mid: str, sender: str, ref: str, kind: str, body: str, target: int
) -> bytes:
    """Return the JSON, without `seq` and `ts`, of an entry that changes message `target`."""
    tail = encode_message_tail(
        chat=chat, mid=mid, sender=sender, ref=ref, kind=kind, body=body, reply_to=None
    )
    return b'%b,"target":%d}' % (tail[:-1], target)


def join_message(seq: int, ts: int, tail: bytes) -> bytes:
    """Return a message's complete JSON."""
    return b'{"seq":%d,"ts":%d,%b' % (seq, ts, tail)


def split_message(json: bytes) -> tuple[int, int, bytes]:
    """Return seq, ts and the rest of a message's JSON as written by `join_message`."""
    seq, ts, tail = json.split(b",", 2)
    return int(seq[len(b'{"seq":') :]), int(ts[len(b'"ts":') :]), tail


def get_kind(tail: bytes) -> str:
    """Return an entry's kind without parsing its JSON."""
    start = tail.index(b'"kind":"') + 8
    return tail[start : tail.index(b'"', start)].decode()


def encode_event_body(chat: str, seq: int, ts: int, tail: bytes) -> bytes:
    """Return a message's event without its start, which differs per inbox (see `join_event`)."""
    return b',"kind":"message","chat":"%b","cs":%d,"message":{"seq":%d,"ts":%d,%b}' % (
        chat.encode(),
        seq,
        seq,
        ts,
        tail,
    )


def get_event_ts(body: bytes) -> int:
    """Return the timestamp of the entry in an event body; 0 if it has none."""
    position = body.find(b',"message":{"seq":', 0, 256)
    if position < 0:
        return 0
    start = body.index(b'"ts":', position) + 5
    return int(body[start : body.index(b",", start)])


def get_event_mid(body: bytes) -> str:
    """Return the message id of the entry in an event body; empty if it has none."""
    position = body.find(b'"mid":"', 0, 512)
    if position < 0 or body.find(b',"message":{"seq":', 0, position) < 0:
        return ""
    start = position + 7
    return body[start : body.index(b'"', start)].decode()


def encode_entry_event_body(chat: str, seq: int, ts: int, tail: bytes) -> bytes:
    """Return the event body for an entry of any kind; see `encode_event_body`."""
    kind = get_kind(tail)
    body = encode_event_body(chat, seq, ts, tail)
    if kind in _ENTRY_KINDS:
        return body.replace(b'"message"', b'"%b"' % kind.encode(), 1)
    return body


_ENTRY_KINDS = frozenset(frames.ENTRY_KINDS)


def encode_hidden_event_body(chat: str, seqs: list[int]) -> bytes:
    """Return the event body for messages that a user deleted for themselves."""
    return b',"kind":"hidden","chat":"%b","hidden":%b}' % (chat.encode(), encode(seqs))


def read_event_body(chat: str, marks: frames.Marks) -> bytes:
    """Return the event body for a member's read marks."""
    return b',"kind":"read","chat":"%b","read":%b}' % (chat.encode(), encode(marks))


def encode_chat_event_body(info: frames.ChatInfo) -> bytes:
    """Return the event body for a new or changed chat.

    The event of a group with more than `EVENT_MEMBERS_MAX` members has no members, roles or mutes.
    `invited` is always removed.
    """
    if len(info.members) > frames.EVENT_MEMBERS_MAX:
        info = msgspec.structs.replace(info, members=[], roles={}, muted={}, invited=[])
    elif info.invited:
        info = msgspec.structs.replace(info, invited=[])
    return b',"kind":"chat","chat":"%b","info":%b}' % (info.chat.encode(), encode(info))


def encode_event_head(epoch: str) -> bytes:
    """Return the start of an event frame, up to its seq."""
    return b'{"type":"event","epoch":"%b","seq":' % epoch.encode()


def join_event(epoch: str, seq: int, body: bytes) -> bytes:
    """Return the complete event frame for one inbox."""
    return b'{"type":"event","epoch":"%b","seq":%d%b' % (epoch.encode(), seq, body)


def encode_ack(
    request_id: int, ref: str, mid: str, seq: int, ts: int, *, dup: bool, durability: str
) -> bytes:
    """Encode an `Ack` frame; faster than encoding the struct, with the same result."""
    return (
        f'{{"type":"ack","id":{request_id},"ref":"{ref}","mid":"{mid}","seq":{seq},"ts":{ts},'
        f'"dup":{"true" if dup else "false"},"durability":"{durability}"}}'
    ).encode()


def encode_error(error: ChatError, request_id: int | None, ref: str | None = None) -> bytes:
    """Encode the `error` frame for the request with this id, and this `ref` if it has one."""
    return encode(
        frames.Error(
            code=error.code,
            message=error.public_message,
            temporary=error.temporary,
            id=msgspec.UNSET if request_id is None else request_id,
            ref=msgspec.UNSET if ref is None else ref,
            retry_after_ms=(
                msgspec.UNSET if error.retry_after_ms is None else error.retry_after_ms
            ),
        )
    )


def decode_message(data: bytes) -> frames.Message:
    """Decode a message from its stored JSON."""
    return _message_decoder.decode(data)
