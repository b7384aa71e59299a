"""Archive segment format: a run of a chat's entries as one object. No I/O.

Object ``archive/v1/<chat>/<first seq>-<last seq>.<tag>.jsonl.zst`` (seqs of 20 digits, so that keys
sort by seq) is one zstd frame with a checksum. It contains JSON lines:

    {"v":1,"chat":"…","first":1,"last":800,"first_ts":…,"last_ts":…}
    {"seq":1,"ts":…,"chat":"…", …}          one entry per line, in order of seq, each seq once

Invariants: an entry's line is its JSON in the wire format. A segment has no gaps: a deleted message
is a tombstone, which is an entry too. Encoding is deterministic, so an object left by a crash can
be compared with the expected one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
import zstandard

from chatserver.domain.archive_segments import Segment
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.errors import CorruptData
from chatserver.protocol import codec
from chatserver.protocol.frames import Message

LEVEL: Final = 10  # written once, read for years
ENTRIES_MAX: Final = 10_000
RAW_BYTES_MAX: Final = 32 * 1024 * 1024  # memory limit for decoding one segment


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    chat: str
    first: int
    last: int
    first_ts: int
    last_ts: int


def encode_segment(entries: Sequence[Message], tag: str = "") -> tuple[Segment, bytes]:
    """Return a segment for `entries`, and its object. CPU-bound: do not call on an event loop.

    Guarantees:
        Deterministic: the same entries make the same bytes.

    Raises:
        CorruptData: the entries are not consecutive entries of one chat, or too many.
    """
    if not entries:
        raise CorruptData("segment: has no entries")
    _check_run(entries[0].chat, entries)
    first, last = entries[0], entries[-1]
    header = _Header(1, first.chat, first.seq, last.seq, first.ts, last.ts)
    lines = [codec.encode(header), *map(codec.encode, entries), b""]
    raw = b"\n".join(lines)
    if len(entries) > ENTRIES_MAX or len(raw) > RAW_BYTES_MAX:
        raise CorruptData(
            f"segment: {len(entries)} entries of {len(raw)} bytes exceed the maximum of "
            f"{ENTRIES_MAX} entries or {RAW_BYTES_MAX} bytes"
        )
    data = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(raw)
    segment = Segment(
        ChatId(first.chat),
        Seq(first.seq),
        Seq(last.seq),
        Ts(first.ts),
        Ts(last.ts),
        len(raw),
        len(data),
        hashlib.sha256(data).hexdigest(),
        tag,
    )
    return segment, data


def decode_segment(segment: Segment, data: bytes) -> list[Message]:
    """Return the entries of an object, which must match the manifest.

    Takes a few milliseconds per megabyte: do not call on an event loop.

    Raises:
        CorruptData: the object is invalid or does not match the manifest. At most the size in the
            manifest is decompressed.
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
        entries = [codec.decode_message(line) for line in lines]
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise CorruptData(f"{segment.key}: not a segment: {exc}") from exc
    if header != _header_of(segment) or len(entries) != segment.count:
        raise CorruptData(f"{segment.key}: contents do not match its header")
    _check_run(segment.chat, entries)
    return entries


def _header_of(segment: Segment) -> _Header:
    return _Header(1, segment.chat, segment.first, segment.last, segment.first_ts, segment.last_ts)


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
