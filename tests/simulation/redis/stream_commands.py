"""Stream commands of the simulated Redis."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.table import command
from tests.simulation.redis.values import (
    EntryId,
    Group,
    RedisError,
    Stream,
    format_id,
    parse_id,
    parse_int,
)

_NODE_ENTRIES = 100  # an approximate trim removes whole nodes
_LAST: EntryId = (2**64 - 1, 2**64 - 1)


def _trim(stream: Stream, strategy: bytes, bound: bytes, *, is_exact: bool) -> int:
    if strategy == b"MAXLEN":
        surplus = max(0, len(stream) - parse_int(bound))
    else:
        surplus = bisect_left(stream.ids, parse_id(bound))
    if not is_exact:
        surplus -= surplus % _NODE_ENTRIES
    return stream.trim(surplus)


def _parse_trim(args: list[bytes], at: int) -> tuple[bytes, bytes, bool, int]:
    """Return the strategy, its bound, whether it is exact, and the position of the next word."""
    strategy, at, is_exact = args[at].upper(), at + 1, True
    if args[at] in (b"~", b"="):
        is_exact = args[at] == b"="
        at += 1
    bound, at = args[at], at + 1
    if at < len(args) and args[at].upper() == b"LIMIT":
        at += 2
    return strategy, bound, is_exact, at


@command("XADD", 4, grows=True)
def _xadd(db: Keyspace, args: list[bytes]) -> bytes | None:
    key, at, trim, creates = args[0], 1, None, True
    while (word := args[at].upper()) in (b"NOMKSTREAM", b"MAXLEN", b"MINID"):
        if word == b"NOMKSTREAM":
            creates, at = False, at + 1
        else:
            *trim, at = _parse_trim(args, at)
    stream = db.read(key, Stream)
    if stream is None and not creates:
        return None
    fields = args[at + 1 :]
    if not fields or len(fields) % 2:
        raise RedisError("ERR wrong number of arguments for 'xadd' command")
    last = (0, 0) if stream is None else stream.last
    entry = _resolve_new_id(args[at], last, db.now_ms)
    stream = db.write(key, Stream)
    stream.append(entry, fields)
    if trim is not None:
        strategy, bound, is_exact = trim
        _trim(stream, strategy, bound, is_exact=is_exact)
    db.touched[key] = None
    return format_id(entry)


def _resolve_new_id(text: bytes, last: EntryId, now_ms: int) -> EntryId:
    if text == b"*":
        return (now_ms, 0) if now_ms > last[0] else (last[0], last[1] + 1)
    if text.endswith(b"-*"):
        ms = parse_int(text[:-2])
        entry = (ms, last[1] + 1) if ms == last[0] else (ms, 0)
    else:
        entry = parse_id(text)
    if entry == (0, 0):
        raise RedisError("ERR The ID specified in XADD must be greater than 0-0")
    if entry <= last:
        raise RedisError(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item"
        )
    return entry


@command("XTRIM", 3, writes=True)
def _xtrim(db: Keyspace, args: list[bytes]) -> int:
    stream = db.read(args[0], Stream)
    if stream is None:
        return 0
    strategy, bound, is_exact, _ = _parse_trim(args, 1)
    db.remember(args[0])
    return _trim(stream, strategy, bound, is_exact=is_exact)


@command("XDEL", 2, writes=True)
def _xdel(db: Keyspace, args: list[bytes]) -> int:
    stream = db.change(args[0], Stream)
    return 0 if stream is None else sum(stream.delete(parse_id(text)) for text in args[1:])


@command("XLEN")
def _xlen(db: Keyspace, args: list[bytes]) -> int:
    return len(db.read(args[0], Stream) or ())


@command("XINFO", 2)
def _xinfo(db: Keyspace, args: list[bytes]) -> list[Any]:
    if args[0].upper() != b"STREAM":
        raise RedisError("ERR not simulated: XINFO " + args[0].decode())
    stream = db.read(args[1], Stream)
    if stream is None:
        raise RedisError("ERR no such key")
    last = len(stream) - 1
    return [
        b"length", len(stream),
        b"last-generated-id", format_id(stream.last),
        b"first-entry", _format(stream, 0) if stream.ids else None,
        b"last-entry", _format(stream, last) if stream.ids else None,
    ]  # fmt: skip


@command("XRANGE", 3)
def _xrange(db: Keyspace, args: list[bytes]) -> list[Any]:
    return _list(db, args[0], args[1], args[2], args[3:], is_reversed=False)


@command("XREVRANGE", 3)
def _xrevrange(db: Keyspace, args: list[bytes]) -> list[Any]:
    return _list(db, args[0], args[2], args[1], args[3:], is_reversed=True)


def _list(
    db: Keyspace, key: bytes, low: bytes, high: bytes, more: list[bytes], *, is_reversed: bool
) -> list[Any]:
    stream = db.read(key, Stream)
    if stream is None:
        return []
    found = stream.find(_parse_bound(low, is_low=True), _parse_bound(high, is_low=False))
    if more:  # COUNT n
        count = parse_int(more[1])
        found = found[max(0, len(found) - count) :] if is_reversed else found[:count]
    positions = reversed(found) if is_reversed else found
    return [_format(stream, at) for at in positions]


def _parse_bound(text: bytes, *, is_low: bool) -> EntryId:
    if text == b"-":
        return (0, 0)
    if text == b"+":
        return _LAST
    is_exclusive = text.startswith(b"(")
    entry = parse_id(text.removeprefix(b"("), 0 if is_low else 2**64 - 1)
    if not is_exclusive:
        return entry
    if is_low:
        return (entry[0], entry[1] + 1)
    return (entry[0], entry[1] - 1) if entry[1] else (entry[0] - 1, 2**64 - 1)


def _format(stream: Stream, at: int) -> list[Any]:
    return [format_id(stream.ids[at]), stream.entries[at]]


# Blocking reads: the server repeats the function until there is a reply or the time is over.


def read_after(db: Keyspace, positions: list[tuple[bytes, EntryId]], count: int) -> list[Any]:
    """XREAD: return the entries after a position of each stream."""
    reply = []
    for key, position in positions:
        stream = db.read(key, Stream)
        if stream is None:
            continue
        found = stream.find((position[0], position[1] + 1), _LAST)[: count or None]
        if found:
            reply.append([key, [_format(stream, at) for at in found]])
    return reply


def read_group(
    db: Keyspace, group: bytes, consumer: bytes, keys: list[bytes], count: int, *, is_acked: bool
) -> list[Any]:
    """XREADGROUP: return new entries and assign them to a consumer."""
    reply = []
    for key in keys:
        stream = db.read(key, Stream)
        known = None if stream is None else stream.groups.get(group)
        if stream is None or known is None:
            raise RedisError(
                f"NOGROUP No such key '{key.decode()}' or consumer group '{group.decode()}' in "
                "XREADGROUP with GROUP option"
            )
        found = stream.find((known.last[0], known.last[1] + 1), _LAST)[: count or None]
        if found:
            db.remember(key)
            known.last = stream.ids[found[-1]]
            if not is_acked:
                for at in found:
                    known.pending[stream.ids[at]] = (consumer, db.now_ms, 1)
            reply.append([key, [_format(stream, at) for at in found]])
    return reply


def get_last_id(db: Keyspace, key: bytes) -> EntryId:
    stream = db.read(key, Stream)
    return (0, 0) if stream is None else stream.last


# Consumer groups


@command("XGROUP", 3, writes=True)
def _xgroup(db: Keyspace, args: list[bytes]) -> Any:
    if args[0].upper() != b"CREATE":
        raise RedisError("ERR not simulated: XGROUP " + args[0].decode())
    key, name, start = args[1], args[2], args[3]
    stream = db.read(key, Stream)
    if stream is None:
        if b"MKSTREAM" not in [word.upper() for word in args[4:]]:
            raise RedisError("ERR The XGROUP subcommand requires the key to exist.")
    elif name in stream.groups:
        raise RedisError("BUSYGROUP Consumer Group name already exists")
    stream = db.write(key, Stream)
    stream.groups[name] = Group(stream.last if start == b"$" else parse_id(start))
    return "OK"


@command("XACK", 3, writes=True)
def _xack(db: Keyspace, args: list[bytes]) -> int:
    stream = db.change(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if group is None:
        return 0
    return sum(group.pending.pop(parse_id(text), None) is not None for text in args[2:])


@command("XAUTOCLAIM", 5, writes=True)
def _xautoclaim(db: Keyspace, args: list[bytes]) -> list[Any]:
    key, name, consumer, idle_ms = args[0], args[1], args[2], parse_int(args[3])
    start = parse_id(args[4])
    stream = db.change(key, Stream)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise RedisError(f"NOGROUP No such key '{key.decode()}' or consumer group")
    words = [word.upper() for word in args[5:]]
    count = parse_int(args[6 + words.index(b"COUNT")]) if b"COUNT" in words else 100
    claimed, deleted = [], []
    for entry in sorted(group.pending):
        _, since_ms, times = group.pending[entry]
        if entry < start or db.now_ms - since_ms < idle_ms or len(claimed) >= count:
            continue
        found = stream.find(entry, entry)
        if not found:
            del group.pending[entry]
            deleted.append(format_id(entry))
            continue
        group.pending[entry] = (consumer, db.now_ms, times + 1)
        claimed.append(_format(stream, found[0]))
    return [b"0-0", claimed, deleted]


@command("XPENDING", 2)
def _xpending(db: Keyspace, args: list[bytes]) -> list[Any]:
    stream = db.read(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    pending = {} if group is None else group.pending
    ids = sorted(pending)
    if not ids:
        return [0, None, None, None]
    return [len(ids), format_id(ids[0]), format_id(ids[-1]), []]
