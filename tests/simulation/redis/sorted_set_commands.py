"""Sorted set commands of the simulated Redis."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.simple_commands import resolve_range
from tests.simulation.redis.table import command
from tests.simulation.redis.values import (
    RedisError,
    SortedSet,
    format_float,
    parse_float,
    parse_int,
)

_HIGHEST = b"\xff" * 64  # sorts after every member


@command("ZADD", 3, grows=True)
def _zadd(db: Keyspace, args: list[bytes]) -> Any:
    at, flags = 1, set[bytes]()
    while args[at].upper() in (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"):
        flags.add(args[at].upper())
        at += 1
    if len(args) == at or (len(args) - at) % 2:
        raise RedisError("ERR syntax error")
    pairs = [(parse_float(args[n]), args[n + 1]) for n in range(at, len(args), 2)]
    known, added, changed = db.read(args[0], SortedSet), 0, 0
    for score, member in pairs:
        old = None if known is None else known.scores.get(member)
        is_refused = (
            (b"NX" in flags and old is not None)
            or (b"XX" in flags and old is None)
            or (b"GT" in flags and old is not None and score <= old)
            or (b"LT" in flags and old is not None and score >= old)
        )
        if is_refused:
            continue
        if old != score:
            known = db.write(args[0], SortedSet)
            known.put(member, score)
            changed += 1
        added += old is None
    return changed if b"CH" in flags else added


@command("ZINCRBY", 3, grows=True)
def _zincrby(db: Keyspace, args: list[bytes]) -> bytes:
    zset = db.write(args[0], SortedSet)
    score = zset.scores.get(args[2], 0.0) + parse_float(args[1])
    zset.put(args[2], score)
    return format_float(score)


@command("ZREM", 2, writes=True)
def _zrem(db: Keyspace, args: list[bytes]) -> int:
    return _remove(db, args[0], args[1:])


def _remove(db: Keyspace, key: bytes, members: list[bytes]) -> int:
    zset = db.read(key, SortedSet)
    if zset is None or not any(member in zset.scores for member in members):
        return 0
    db.remember(key)
    removed = sum(zset.remove(member) for member in members)
    db.delete_empty(key)
    return removed


@command("ZSCORE", 2)
def _zscore(db: Keyspace, args: list[bytes]) -> bytes | None:
    return _zmscore(db, args)[0]


@command("ZMSCORE", 2)
def _zmscore(db: Keyspace, args: list[bytes]) -> list[bytes | None]:
    scores = _get(db, args[0]).scores
    return [None if m not in scores else format_float(scores[m]) for m in args[1:]]


@command("ZCARD")
def _zcard(db: Keyspace, args: list[bytes]) -> int:
    return len(_get(db, args[0]))


@command("ZCOUNT", 3)
def _zcount(db: Keyspace, args: list[bytes]) -> int:
    return len(_find_by_score(_get(db, args[0]), args[1], args[2]))


@command("ZRANGE", 3)
def _zrange(db: Keyspace, args: list[bytes]) -> list[bytes]:
    words = [word.upper() for word in args[3:]]
    zset, is_reversed = _get(db, args[0]), b"REV" in words
    if b"BYSCORE" in words:
        low, high = (args[2], args[1]) if is_reversed else (args[1], args[2])
        found = [zset.order[at] for at in _find_by_score(zset, low, high)]
        if is_reversed:
            found.reverse()
    elif b"BYLEX" in words:
        low, high = (args[2], args[1]) if is_reversed else (args[1], args[2])
        found = [pair for pair in zset.order if _is_in_lex(pair[1], low, high)]
        if is_reversed:
            found.reverse()
    else:
        order = zset.order[::-1] if is_reversed else zset.order
        found = [order[at] for at in resolve_range(args[1], args[2], len(order))]
    if b"LIMIT" in words:
        at = 3 + words.index(b"LIMIT")
        offset, count = parse_int(args[at + 1]), parse_int(args[at + 2])
        found = found[offset:] if count < 0 else found[offset : offset + count]
    return _format(found, with_scores=b"WITHSCORES" in words)


@command("ZREVRANGE", 3)
def _zrevrange(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return _zrange(db, [*args[:3], b"REV", *args[3:]])


@command("ZRANGEBYSCORE", 3)
def _zrangebyscore(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return _zrange(db, [*args[:3], b"BYSCORE", *args[3:]])


@command("ZREVRANGEBYSCORE", 3)
def _zrevrangebyscore(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return _zrange(db, [*args[:3], b"BYSCORE", b"REV", *args[3:]])


@command("ZREMRANGEBYSCORE", 3, writes=True)
def _zremrangebyscore(db: Keyspace, args: list[bytes]) -> int:
    zset = _get(db, args[0])
    members = [zset.order[at][1] for at in _find_by_score(zset, args[1], args[2])]
    return _remove(db, args[0], members)


@command("ZREMRANGEBYRANK", 3, writes=True)
def _zremrangebyrank(db: Keyspace, args: list[bytes]) -> int:
    zset = _get(db, args[0])
    members = [zset.order[at][1] for at in resolve_range(args[1], args[2], len(zset))]
    return _remove(db, args[0], members)


@command("ZPOPMIN", writes=True)
def _zpopmin(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return _pop(db, args, is_highest=False)


@command("ZPOPMAX", writes=True)
def _zpopmax(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return _pop(db, args, is_highest=True)


def _pop(db: Keyspace, args: list[bytes], *, is_highest: bool) -> list[bytes]:
    order, count = _get(db, args[0]).order, parse_int(args[1]) if len(args) > 1 else 1
    found = (order[::-1] if is_highest else order)[:count]
    _remove(db, args[0], [member for _, member in found])
    return _format(found, with_scores=True)


@command("ZSCAN", 2)
def _zscan(db: Keyspace, args: list[bytes]) -> list[Any]:
    return [b"0", _format(_get(db, args[0]).order, with_scores=True)]


def _get(db: Keyspace, key: bytes) -> SortedSet:
    return db.read(key, SortedSet) or SortedSet()


def _format(found: list[tuple[float, bytes]], *, with_scores: bool) -> list[bytes]:
    if not with_scores:
        return [member for _, member in found]
    return [text for score, member in found for text in (member, format_float(score))]


def _find_by_score(zset: SortedSet, low: bytes, high: bytes) -> range:
    if low.startswith(b"("):
        first = bisect_right(zset.order, (parse_float(low[1:]), _HIGHEST))
    else:
        first = bisect_left(zset.order, (parse_float(low), b""))
    if high.startswith(b"("):
        last = bisect_left(zset.order, (parse_float(high[1:]), b""))
    else:
        last = bisect_right(zset.order, (parse_float(high), _HIGHEST))
    return range(first, last)


def _is_in_lex(member: bytes, low: bytes, high: bytes) -> bool:
    is_above = low == b"-" or member > low[1:] or (low[:1] == b"[" and member == low[1:])
    is_below = high == b"+" or member < high[1:] or (high[:1] == b"[" and member == high[1:])
    return is_above and is_below
