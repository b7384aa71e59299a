"""Archive segment format: consecutive entries of a chat in one object. No I/O.

Object ``archive/v1/<chat>/<first seq>-<last seq>.<tag>.jsonl.zst`` (seqs of 20 digits, so that keys
sort by seq) is one zstd frame with a checksum. It contains JSON lines:

    {"v":1,"chat":"…","first":1,"last":800,"first_ts":…,"last_ts":…}
    {"seq":1,"ts":…,"chat":"…", …}          one entry per line, in order of seq, each seq once

With client-side encryption, the header has ``"v":2``. Entries with a body or files are written with
``"shredded":true``, without the body and the file names. These texts are in the last line: a JSON
string with an encrypted value in base64. The decrypted value is a zstd frame with a JSON list of
strings. For each of these entries, the list has the body and then the file names. The value can be
decrypted only with the chat, first seq and last seq for which it was encrypted.

Invariants: an entry's line is its JSON in the wire format. A segment has no gaps: a deleted message
is a tombstone, which is an entry too. Encoding is deterministic, so an object left by a crash can
be compared with the expected one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import zstandard

from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.encryption.value_cipher import DataKey, EncryptionContext
from chatserver.errors import CorruptData
from chatserver.protocol import codec
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import build_shredded_tombstone

LEVEL: Final = 10  # zstd level; high, because objects are written once and read for years
ENTRIES_MAX: Final = 10_000
RAW_BYTES_MAX: Final = 32 * 1024 * 1024  # maximum uncompressed size of one segment


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    chat: str
    first: int
    last: int
    first_ts: int
    last_ts: int


class Unpacked(NamedTuple):
    """A decoded segment.

    `bodies`: the encrypted bodies and file names; None if the entries are not encrypted.
    """

    segment: ArchiveSegment
    entries: list[Message]
    bodies: bytes | None


def encode_segment(
    entries: Sequence[Message], tag: str = "", key: DataKey | None = None
) -> tuple[ArchiveSegment, bytes]:
    """Return the segment for `entries`, and its content. CPU-bound: do not call on an event loop.

    `key` encrypts the bodies and file names.

    Guarantees:
        Deterministic: the same entries and key produce the same bytes.

    Raises:
        CorruptData: there are no entries or too many, or they are not consecutive in one chat.
    """
    if not entries:
        raise CorruptData("segment: has no entries")
    _check_run(entries[0].chat, entries)
    first, last = entries[0], entries[-1]
    header = _Header(
        v=1, chat=first.chat, first=first.seq, last=last.seq, first_ts=first.ts, last_ts=last.ts
    )
    texts = [text for entry in entries if has_content(entry) for text in _list_texts(entry)]
    if key is None or not texts:
        lines = [codec.encode(header), *map(codec.encode, entries), b""]
    else:
        header = msgspec.structs.replace(header, v=2)
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(msgspec.json.encode(texts))
        encrypted = msgspec.json.encode(key.encrypt(_build_context(header), packed))
        public = (_without_texts(entry) for entry in entries)
        lines = [codec.encode(header), *map(codec.encode, public), encrypted, b""]
    raw = b"\n".join(lines)
    if len(entries) > ENTRIES_MAX or len(raw) > RAW_BYTES_MAX:
        raise CorruptData(
            f"segment: {len(entries)} entries of {len(raw)} bytes exceed the maximum of "
            f"{ENTRIES_MAX} entries or {RAW_BYTES_MAX} bytes"
        )
    data = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(raw)
    segment = ArchiveSegment(
        chat=ChatId(first.chat),
        first=Seq(first.seq),
        last=Seq(last.seq),
        first_ts=Ts(first.ts),
        last_ts=Ts(last.ts),
        raw_bytes=len(raw),
        stored_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        tag=tag,
    )
    return segment, data


def has_content(entry: Message) -> bool:
    """Return whether an entry has something to encrypt: a body or file names."""
    return bool(entry.body or entry.attachments)


def _list_texts(entry: Message) -> list[str]:
    return [entry.body, *(attachment.name for attachment in entry.attachments)]


def _without_texts(entry: Message) -> Message:
    if not has_content(entry):
        return entry
    files = [msgspec.structs.replace(attachment, name="") for attachment in entry.attachments]
    return msgspec.structs.replace(entry, body="", attachments=files, shredded=True)


def _with_texts(entry: Message, texts: Iterator[str]) -> Message:
    body = next(texts)
    files = [
        msgspec.structs.replace(attachment, name=next(texts)) for attachment in entry.attachments
    ]
    return msgspec.structs.replace(entry, body=body, attachments=files, shredded=False)


def decode_segment(
    segment: ArchiveSegment, data: bytes, key: DataKey | None = None
) -> list[Message]:
    """Return the entries of an object; see `unpack_segment` and `decrypt_bodies`."""
    return decrypt_bodies(unpack_segment(segment, data), key)


def decrypt_bodies(unpacked: Unpacked, key: DataKey | None) -> list[Message]:
    """Return the entries with their bodies and file names.

    If `key` is None, entries with encrypted text become tombstones with `shredded` set.
    CPU-bound: do not call on an event loop.

    Raises:
        CorruptData: the bodies have been changed, or belong to another segment.
    """
    segment, entries, encrypted = unpacked
    if encrypted is None:
        return entries
    if key is None:
        return [build_shredded_tombstone(entry) if entry.shredded else entry for entry in entries]
    packed = key.decrypt(_build_context(_build_header(segment)), encrypted)
    try:
        raw = zstandard.ZstdDecompressor().decompress(
            packed, max_output_size=RAW_BYTES_MAX, allow_extra_data=False
        )
        texts = iter(msgspec.json.decode(raw, type=list[str]))
        whole = [
            _with_texts(entry, texts) if entry.shredded and not entry.deleted else entry
            for entry in entries
        ]
    except (zstandard.ZstdError, msgspec.MsgspecError, StopIteration, RuntimeError) as exc:
        raise CorruptData(f"{segment.key}: invalid encrypted content: {exc!r}") from exc
    if next(texts, None) is not None:
        raise CorruptData(f"{segment.key}: has more encrypted strings than its entries need")
    return whole


def unpack_segment(segment: ArchiveSegment, data: bytes) -> Unpacked:
    """Parse an object, which must match the manifest.

    Takes a few milliseconds per megabyte: do not call on an event loop.

    Raises:
        CorruptData: the object is invalid or does not match the manifest. Decompression stops at
            the size in the manifest.
    """
    if len(data) != segment.stored_bytes or hashlib.sha256(data).hexdigest() != segment.sha256:
        raise CorruptData(f"{segment.key}: does not match the manifest")
    if segment.raw_bytes > RAW_BYTES_MAX:
        raise CorruptData(f"{segment.key}: larger than the maximum segment size")
    try:
        raw = zstandard.ZstdDecompressor().decompress(
            data, max_output_size=segment.raw_bytes, allow_extra_data=False
        )
        head, *lines = raw.removesuffix(b"\n").split(b"\n")
        header = msgspec.json.decode(head, type=_Header)
        encrypted = (
            msgspec.json.decode(lines.pop(), type=bytes) if header.v == 2 and lines else None
        )
        entries = [codec.decode_message(line) for line in lines]
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise CorruptData(f"{segment.key}: not a segment: {exc}") from exc
    if (
        header not in (_build_header(segment), _build_header(segment, 2))
        or len(entries) != segment.count
    ):
        raise CorruptData(f"{segment.key}: contents do not match its header")
    _check_run(segment.chat, entries)
    return Unpacked(segment, entries, encrypted)


def _build_context(header: _Header) -> EncryptionContext:
    return ("segment", header.chat, str(header.first), str(header.last))


def _build_header(segment: ArchiveSegment, v: int = 1) -> _Header:
    return _Header(
        v=v,
        chat=segment.chat,
        first=segment.first,
        last=segment.last,
        first_ts=segment.first_ts,
        last_ts=segment.last_ts,
    )


def _check_run(chat: str, entries: Sequence[Message]) -> None:
    for entry in entries:
        if entry.chat != chat:
            raise CorruptData(f"segment of {chat}: has an entry of {entry.chat}")
    for before, after in pairwise(entries):
        if after.seq != before.seq + 1 or after.ts <= before.ts:
            raise CorruptData(
                f"segment of {chat}: {after.seq} at {after.ts} does not follow {before.seq} at "
                f"{before.ts}"
            )
