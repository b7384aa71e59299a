"""Server test cases of the Autobahn test suite as a table: groups 1 to 7, 9 and 10.

Written from RFC 6455 and the published list of cases; ids are those of the suite. Groups 12 and 13
cover compression, which the gateway does not offer. Sizes and counts of group 9 are a sixteenth of
the suite's, so that the largest message fits `gateway.frame_bytes_max`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tests.support.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    build_frame,
    close_payload,
)

NORMAL, GOING_AWAY, PROTOCOL_ERROR, BAD_DATA = 1000, 1001, 1002, 1007
GROUP_SIZES = {1: 16, 2: 11, 3: 7, 4: 10, 5: 20, 6: 145, 7: 37, 9: 54, 10: 1}
MESSAGE_BYTES_MAX = 2**20
SCALE = 16
HELLO = b"Hello, world!"
GREEK = "\u03ba\u1f79\u03c3\u03bc\u03b5".encode()


@dataclasses.dataclass(frozen=True)
class Case:
    """Bytes to write, the expected frames, and the allowed close codes."""

    id: str
    writes: tuple[bytes, ...]
    answers: tuple[tuple[int, bytes], ...] = ()
    codes: tuple[int | None, ...] = ()  # empty: the client closes with 1000
    is_binary: bool = False


def text(payload: bytes, **bits: object) -> bytes:
    """Build a text frame."""
    return build_frame(TEXT, payload, **bits)  # type: ignore[arg-type]


def continuation(payload: bytes, **bits: object) -> bytes:
    """Build a continuation frame."""
    return build_frame(CONTINUATION, payload, **bits)  # type: ignore[arg-type]


def split(data: bytes, size: int = 1) -> tuple[bytes, ...]:
    """Split bytes into writes of one size."""
    return tuple(data[at : at + size] for at in range(0, len(data), size))


def fragments_of(opcode: int, payload: bytes, size: int) -> tuple[bytes, ...]:
    """Split a message into frames of one size."""
    pieces = split(payload, size) or (b"",)
    last = len(pieces) - 1
    return tuple(
        build_frame(CONTINUATION if at else opcode, piece, fin=at == last)
        for at, piece in enumerate(pieces)
    )


def write_variants(frames: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], ...]:
    """Return the frames in one write, in one write per frame, and byte by byte."""
    joined = b"".join(frames)
    return (joined,), frames, split(joined)


def framing_cases() -> Iterator[Case]:
    """Group 1: unfragmented messages at the boundaries of the length encodings."""
    sizes = (0, 125, 126, 127, 128, 65_535, 65_536)
    for part, opcode, byte in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for number, size in enumerate(sizes, 1):
            payload = byte * size
            frame = build_frame(opcode, payload)
            yield Case(
                f"1.{part}.{number}", (frame,), ((opcode, payload),), is_binary=opcode == BINARY
            )
        yield Case(
            f"1.{part}.8", split(frame, 997), ((opcode, payload),), is_binary=opcode == BINARY
        )


def ping_cases() -> Iterator[Case]:
    """Group 2: pings and pongs."""
    bytes_, longest = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125
    yield Case("2.1", (build_frame(PING),), ((PONG, b""),))
    yield Case("2.2", (build_frame(PING, HELLO),), ((PONG, HELLO),))
    yield Case("2.3", (build_frame(PING, bytes_),), ((PONG, bytes_),))
    yield Case("2.4", (build_frame(PING, longest),), ((PONG, longest),))
    yield Case("2.5", (build_frame(PING, b"\xfe" * 126),), (), (PROTOCOL_ERROR,))
    yield Case("2.6", split(build_frame(PING, longest)), ((PONG, longest),))
    yield Case("2.7", (build_frame(PONG),))
    yield Case("2.8", (build_frame(PONG, b"unsolicited"),))
    pong_then_ping = (build_frame(PONG, b"unsolicited"), build_frame(PING, b"ping"))
    yield Case("2.9", pong_then_ping, ((PONG, b"ping"),))
    payloads = [b"payload-%d" % number for number in range(10)]
    pings = tuple(build_frame(PING, payload) for payload in payloads)
    pongs = tuple((PONG, payload) for payload in payloads)
    yield Case("2.10", pings, pongs)
    yield Case("2.11", split(b"".join(pings)), pongs)


def reserved_bit_cases() -> Iterator[Case]:
    """Group 3: reserved bits without an extension."""
    fails, echo = (PROTOCOL_ERROR,), ((TEXT, HELLO),)
    yield Case("3.1", (text(HELLO, rsv=1),), (), fails)
    for number, rsv, variant in ((2, 2, 0), (3, 3, 1), (4, 4, 2)):
        frames = (text(HELLO), text(HELLO, rsv=rsv), build_frame(PING))
        yield Case(f"3.{number}", write_variants(frames)[variant], echo, fails)
    yield Case("3.5", (build_frame(BINARY, b"\x00\xff", rsv=5),), (), fails, is_binary=True)
    yield Case("3.6", (build_frame(PING, HELLO, rsv=6),), (), fails)
    yield Case("3.7", (build_frame(CLOSE, rsv=7),), (), fails)


def opcode_cases() -> Iterator[Case]:
    """Group 4: reserved opcodes of data and control frames."""
    fails, echo = (PROTOCOL_ERROR,), ((TEXT, HELLO),)
    for part, first in ((1, 3), (2, 11)):
        bare, filled = build_frame(first), build_frame(first + 1, b"reserved")
        yield Case(f"4.{part}.1", (bare,), (), fails)
        yield Case(f"4.{part}.2", (filled,), (), fails)
        for number, payload, variant in ((3, b"", 0), (4, b"reserved", 1), (5, b"reserved", 2)):
            frames = (text(HELLO), build_frame(first + number - 1, payload), build_frame(PING))
            yield Case(f"4.{part}.{number}", write_variants(frames)[variant], echo, fails)


def fragment_cases() -> Iterator[Case]:
    """Group 5: fragments, and control frames between them."""
    fails = (PROTOCOL_ERROR,)
    one, two = b"fragment1", b"fragment2"
    whole = ((TEXT, one + two),)
    yield Case("5.1", (build_frame(PING, one, fin=False), continuation(two)), (), fails)
    yield Case("5.2", (build_frame(PONG, one, fin=False), continuation(two)), (), fails)
    parts = (text(one, fin=False), continuation(two))
    for number, writes in enumerate(write_variants(parts), 3):
        yield Case(f"5.{number}", writes, whole)
    pinged = (parts[0], build_frame(PING, b"ping"), parts[1])
    for number, writes in enumerate(write_variants(pinged), 6):
        yield Case(f"5.{number}", writes, ((PONG, b"ping"), *whole))
    for first, fin in ((9, True), (12, False)):
        stray = (continuation(b"non-continuation", fin=fin), text(HELLO))
        for number, writes in enumerate(write_variants(stray), first):
            yield Case(f"5.{number}", writes, (), fails)
    yield Case(
        "5.15",
        (b"".join((*parts, continuation(b"three", fin=False), text(b"four"))),),
        whole,
        fails,
    )
    for number, fin in ((16, False), (17, True)):
        frames = (continuation(one, fin=fin), text(two, fin=False), continuation(b"fragment3"))
        yield Case(f"5.{number}", frames * 2, (), fails)
    yield Case("5.18", (text(one, fin=False), text(two)), (), fails)
    five = fragments_of(TEXT, b"fragment1fragment2fragment3fragment4fragment5", 9)
    pings = (build_frame(PING, b"pongme 1!"), build_frame(PING, b"pongme 2!"))
    frames = (*five[:2], pings[0], *five[2:4], pings[1], five[4])
    answers = (
        (PONG, b"pongme 1!"),
        (PONG, b"pongme 2!"),
        (TEXT, b"fragment1fragment2fragment3fragment4fragment5"),
    )
    yield Case("5.19", (b"".join(frames),), answers)
    yield Case("5.20", frames, answers)


def _hex(*lines: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in lines]


_ENDS = ("fffe", "ffff")
# Sections 6.5 to 6.23, after Markus Kuhn's list; Python's codec determines which are valid.
UTF8_SECTIONS: list[list[bytes]] = [
    [*(f"hello{middle}world".encode() for middle in ("$", "¢", "€", "\U00024b62")), GREEK],
    [GREEK[:size] for size in range(1, len(GREEK) + 1)],
    _hex("00", "c280", "e0a080", "f0908080"),
    _hex("f888808080", "fc8480808080"),
    _hex("7f", "dfbf", "efbfbf", "f48fbfbf"),
    _hex("f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"),
    _hex("ed9fbf", "ee8080", "efbfbd", "f48fbfbf", "f4908080"),
    [*_hex("80", "bf"), *((b"\x80\xbf" * 4)[:size] for size in range(2, 7)),
     bytes(range(0x80, 0xC0))],
    [b" ".join(bytes([each]) for each in range(first, last)) + b" "
     for first, last in ((0xC0, 0xE0), (0xE0, 0xF0), (0xF0, 0xF8), (0xF8, 0xFC), (0xFC, 0xFE))],
    _hex("c0", "e080", "f08080", "f8808080", "fc80808080",
         "df", "efbf", "f7bfbf", "fbbfbfbf", "fdbfbfbfbf"),
    _hex("c0e080f08080f8808080fc80808080dfefbff7bfbffbbfbfbffdbfbfbfbf"),
    _hex("fe", "ff", "fefeffff"),
    _hex("c0af", "e080af", "f08080af", "f8808080af", "fc80808080af"),
    _hex("c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"),
    _hex("c080", "e08080", "f0808080", "f880808080", "fc8080808080"),
    _hex("eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf"),
    _hex("eda080edb080", "eda080edbfbf", "edadbfedb080", "edadbfedbfbf",
         "edae80edb080", "edae80edbfbf", "edafbfedb080", "edafbfedbfbf"),
    [chr(plane << 16 | int(end, 16)).encode() for plane in range(17) for end in _ENDS],
    [chr(point).encode() for point in range(0xFFF9, 0x10000)],
]  # fmt: skip


def utf8_cases() -> Iterator[Case]:
    """Group 6: valid and invalid UTF-8; 6.4 fails before the message is complete."""
    bad = (BAD_DATA,)
    yield Case("6.1.1", (text(b""),), ((TEXT, b""),))
    empty = (text(b"", fin=False), continuation(b"", fin=False), continuation(b""))
    yield Case("6.1.2", empty, ((TEXT, b""),))
    middle = (text(b"", fin=False), continuation(b"middle", fin=False), continuation(b""))
    yield Case("6.1.3", middle, ((TEXT, b"middle"),))
    one, two = "Hello-µ@ßöä".encode(), "üàá-UTF-8!!".encode()
    echo = ((TEXT, one + two),)
    yield Case("6.2.1", (text(one + two),), echo)
    yield Case("6.2.2", (text(one, fin=False), continuation(two)), echo)
    yield Case("6.2.3", fragments_of(TEXT, one + two, 1), echo)
    yield Case("6.2.4", fragments_of(TEXT, GREEK, 1), ((TEXT, GREEK),))
    surrogate = GREEK + b"\xed\xa0\x80edited"
    yield Case("6.3.1", (text(surrogate),), (), bad)
    yield Case("6.3.2", fragments_of(TEXT, surrogate, 1), (), bad)
    # The rest of the message is never sent, so a server that waits for it fails these cases.
    beyond = (GREEK, b"\xf4\x90\x80\x80", b"edited")
    early = (text(beyond[0], fin=False), continuation(beyond[1], fin=False))
    yield Case("6.4.1", early, (), bad)
    cut = (text(GREEK + b"\xf4", fin=False), continuation(b"\x90", fin=False))
    yield Case("6.4.2", cut, (), bad)
    # Within one frame, the suite accepts a failure at its end ("non-strict"). So does this table.
    frame = text(b"".join(beyond))
    head = len(frame) - len(b"".join(beyond))
    ends = (head + len(GREEK), head + len(GREEK) + 4, len(frame))
    yield Case("6.4.3", (frame[: ends[0]], frame[ends[0] : ends[1]], frame[ends[1] :]), (), bad)
    ends = (head + len(GREEK) + 1, head + len(GREEK) + 2, len(frame))
    yield Case("6.4.4", (frame[: ends[0]], frame[ends[0] : ends[1]], frame[ends[1] :]), (), bad)
    for section, sequences in enumerate(UTF8_SECTIONS, 5):
        for number, sequence in enumerate(sequences, 1):
            id_ = f"6.{section}.{number}"
            try:
                sequence.decode()
            except UnicodeDecodeError:
                yield Case(id_, (text(sequence),), (), bad)
            else:
                yield Case(id_, (text(sequence),), ((TEXT, sequence),))


def close_cases() -> Iterator[Case]:
    """Group 7: the closing handshake, its codes and its reasons."""
    close = build_frame(CLOSE, close_payload(NORMAL))
    ends, fails = (NORMAL,), (PROTOCOL_ERROR,)
    yield Case("7.1.1", (text(HELLO), close), ((TEXT, HELLO),), ends)
    yield Case("7.1.2", (close, close), (), ends)
    yield Case("7.1.3", (close, build_frame(PING)), (), ends)
    yield Case("7.1.4", (close, text(HELLO)), (), ends)
    begun = (text(b"fragment1", fin=False), close, continuation(b"fragment2"))
    yield Case("7.1.5", begun, (), ends)
    big = b"BAsd7&jh23" * 26_214
    yield Case(
        "7.1.6",
        (text(big), text(HELLO), close, build_frame(PING)),
        ((TEXT, big), (TEXT, HELLO)),
        ends,
    )
    yield Case("7.3.1", (build_frame(CLOSE),), (), (None, NORMAL))
    yield Case("7.3.2", (build_frame(CLOSE, b"a"),), (), fails)
    yield Case("7.3.3", (close,), (), ends)
    yield Case("7.3.4", (build_frame(CLOSE, close_payload(NORMAL, HELLO)),), (), ends)
    yield Case("7.3.5", (build_frame(CLOSE, close_payload(NORMAL, b"*" * 123)),), (), ends)
    yield Case("7.3.6", (build_frame(CLOSE, close_payload(NORMAL, b"*" * 124)),), (), fails)
    reason = GREEK + b"\xed\xa0\x80edited"
    invalid = build_frame(CLOSE, close_payload(NORMAL, reason))
    yield Case("7.5.1", (invalid,), (), (BAD_DATA,))
    valid = (NORMAL, GOING_AWAY, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for number, code in enumerate(valid, 1):
        yield Case(f"7.7.{number}", (build_frame(CLOSE, close_payload(code)),), (), (code,))
    for number, code in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        yield Case(f"7.9.{number}", (build_frame(CLOSE, close_payload(code)),), (), fails)
    # The suite only records the outcome of these.
    for number, code in enumerate((5000, 65_535), 1):
        yield Case(f"7.13.{number}", (build_frame(CLOSE, close_payload(code)),), (), (code, *fails))


def bulk_cases() -> Iterator[Case]:
    """Groups 9 and 10: large messages, whole, fragmented or in small writes; many small ones."""
    kib, whole = 1024, 4 * 2**20 // SCALE
    for shift, opcode, byte in ((0, TEXT, b"\xce\xba"), (1, BINARY, b"\x00\xfe")):
        binary = opcode == BINARY
        for number, size in enumerate((64, 256, 1024, 4096, 8192, 16_384), 1):
            payload = byte * (size * kib // SCALE // 2)
            frame = build_frame(opcode, payload)
            yield Case(f"9.{1 + shift}.{number}", (frame,), ((opcode, payload),), (), binary)
        payload = byte * (whole // 2)
        sizes = (64, 256, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, 2**20, 4 * 2**20)
        for number, size in enumerate(sizes, 1):
            frames = (b"".join(fragments_of(opcode, payload, size)),)
            yield Case(f"9.{3 + shift}.{number}", frames, ((opcode, payload),), (), binary)
        payload = byte * (2**20 // SCALE // 2)
        for number, size in enumerate((64, 128, 256, 512, 1024, 2048), 1):
            writes = split(build_frame(opcode, payload), size)
            yield Case(f"9.{5 + shift}.{number}", writes, ((opcode, payload),), (), binary)
        for number, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            payload, count = byte[-1:] * size if binary else b"*" * size, 1000 // SCALE
            frames = (build_frame(opcode, payload),) * count
            yield Case(f"9.{7 + shift}.{number}", frames, ((opcode, payload),) * count, (), binary)
    payload = b"*" * 65_536
    yield Case("10.1.1", fragments_of(TEXT, payload, 1300), ((TEXT, payload),))


CASES = [
    *framing_cases(),
    *ping_cases(),
    *reserved_bit_cases(),
    *opcode_cases(),
    *fragment_cases(),
    *utf8_cases(),
    *close_cases(),
    *bulk_cases(),
]
