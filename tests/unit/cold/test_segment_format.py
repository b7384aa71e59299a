"""The archive segment format: round trips, and corrupt objects are refused."""

from __future__ import annotations

import dataclasses
import hashlib

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from chatserver.cold.segment_format import RAW_BYTES_MAX, decode_segment, encode_segment
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.errors import CorruptData
from chatserver.protocol.frames import Message

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def runs(draw: st.DrawFn) -> list[Message]:
    """Generate consecutive entries of one chat."""
    seq, ts = draw(st.integers(1, 10**12)), draw(st.integers(1, 10**16))
    entries = []
    for _ in range(draw(st.integers(1, 12))):
        entries.append(
            Message(
                seq,
                ts,
                "chat",
                "mid",
                draw(st.sampled_from(["alice", "bob"])),
                f"r{seq}",
                draw(st.sampled_from(["text", "image", "reaction"])),
                draw(texts),
                reply_to=draw(st.none() | st.integers(1, 2**53)),
                deleted=draw(st.booleans()),
                reactions=draw(st.dictionaries(st.sampled_from(["carol", "dave"]), texts)),
            )
        )
        seq, ts = seq + 1, ts + draw(st.integers(1, 10**6))
    return entries


def entry(seq: int, ts: int | None = None, chat: str = "chat") -> Message:
    """Return a plain message."""
    return Message(seq, seq * 10 if ts is None else ts, chat, "mid", "alice", "ref", "text", "Hi")


def recompress(segment: ArchiveSegment, raw: bytes) -> tuple[ArchiveSegment, bytes]:
    """Compress other content, with a manifest that matches the object."""
    data = zstandard.ZstdCompressor().compress(raw)
    digest = hashlib.sha256(data).hexdigest()
    manifest = dataclasses.replace(
        segment, raw_bytes=len(raw), stored_bytes=len(data), sha256=digest
    )
    return manifest, data


@given(runs())
def test_encoded_entries_are_decoded_unchanged(entries: list[Message]) -> None:
    """Every field of every entry is kept, and the manifest describes the content."""
    segment, data = encode_segment(entries)

    assert decode_segment(segment, data) == entries
    assert (segment.first, segment.last) == (entries[0].seq, entries[-1].seq)
    assert segment.count == len(entries)
    assert encode_segment(entries) == (segment, data)


def test_keys_sort_in_the_order_of_their_entries() -> None:
    """A listing of the bucket is in the order of the chat."""
    keys = [encode_segment([entry(seq)])[0].key for seq in (2, 10, 999, 1000)]

    assert keys == sorted(keys)
    assert keys[0] == "archive/v1/chat/00000000000000000002-00000000000000000002.jsonl.zst"


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [entry(1), entry(3)],  # a gap
        [entry(1), entry(1, 20)],  # a repeated seq
        [entry(2), entry(1, 30)],  # descending
        [entry(1), entry(2, 10)],  # the same time
        [entry(1), entry(2, chat="other")],
    ],
)
def test_entries_that_are_not_consecutive_are_not_encoded(entries: list[Message]) -> None:
    """A gap is never archived as a complete range."""
    with pytest.raises(CorruptData):
        encode_segment(entries)


@given(st.data())
def test_changed_object_is_refused(data: st.DataObject) -> None:
    """A flipped bit, a missing byte or an extra byte does not match the manifest."""
    segment, good = encode_segment([entry(seq) for seq in range(1, 20)])
    at = data.draw(st.integers(0, len(good) - 1))
    bit = 1 << data.draw(st.integers(0, 7))

    for bad in (good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :], good[:at], good + b"x"):
        with pytest.raises(CorruptData, match="does not match the manifest"):
            decode_segment(segment, bad)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],  # an entry is missing
        lambda lines: [*lines, lines[-1]],  # an entry is repeated
        lambda lines: [lines[0], *reversed(lines[1:])],
        lambda lines: lines[1:],  # no header
        lambda lines: [lines[0].replace(b'"chat":"chat"', b'"chat":"other"'), *lines[1:]],
        lambda lines: [*lines[:-1], lines[-1].replace(b'"chat":"chat"', b'"chat":"other"')],
        lambda lines: [lines[0].replace(b'"v":1', b'"v":2'), *lines[1:]],
        lambda lines: [*lines[:-1], b"\xff"],
        lambda lines: [*lines[:-1], b"{}"],
        lambda lines: [],
    ],
)
def test_invalid_content_with_matching_digest_is_refused(change: object) -> None:
    """A manifest that matches the bytes does not make them a valid segment."""
    assert callable(change)
    segment, data = encode_segment([entry(seq) for seq in range(1, 5)])
    lines = zstandard.ZstdDecompressor().decompress(data).removesuffix(b"\n").split(b"\n")
    manifest, invalid = recompress(segment, b"\n".join([*change(lines), b""]))

    with pytest.raises(CorruptData):
        decode_segment(manifest, invalid)


def test_object_larger_than_its_manifest_is_not_decompressed() -> None:
    """A decompression bomb costs at most the number of bytes in its manifest."""
    segment, _ = encode_segment([entry(1)])
    bomb = zstandard.ZstdCompressor().compress(b"0" * (RAW_BYTES_MAX + 1))
    digest = hashlib.sha256(bomb).hexdigest()
    manifest = dataclasses.replace(segment, stored_bytes=len(bomb), sha256=digest)

    with pytest.raises(CorruptData):
        decode_segment(manifest, bomb)
    with pytest.raises(CorruptData, match="larger"):
        decode_segment(dataclasses.replace(manifest, raw_bytes=RAW_BYTES_MAX + 1), bomb)


def test_segment_is_a_tenth_of_its_entries() -> None:
    """Chat messages compress well."""
    entries = [entry(seq) for seq in range(1, 1001)]

    segment, data = encode_segment(entries)

    assert segment.raw_bytes == sum(len(msgspec.json.encode(e)) + 1 for e in entries) + len(
        b'{"v":1,"chat":"chat","first":1,"last":1000,"first_ts":10,"last_ts":10000}\n'
    )
    assert len(data) * 10 < segment.raw_bytes
