"""Commands of the simulated Redis for strings, hashes, sets, lists and keys."""

from __future__ import annotations

import fnmatch
from typing import Any

from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.table import command
from tests.simulation.redis.values import (
    RedisError,
    SortedSet,
    Status,
    Stream,
    format_float,
    parse_float,
    parse_int,
)

_TYPES = {
    bytes: "string",
    dict: "hash",
    set: "set",
    list: "list",
    SortedSet: "zset",
    Stream: "stream",
}

# Keys


@command("EXISTS")
def _exists(db: Keyspace, args: list[bytes]) -> int:
    return sum(db.find(key) is not None for key in args)


@command("DEL", writes=True)
def _del(db: Keyspace, args: list[bytes]) -> int:
    return sum(db.find(key) is not None and db.delete(key) for key in args)


command("UNLINK", writes=True)(_del)


@command("TYPE")
def _type(db: Keyspace, args: list[bytes]) -> Status:
    value = db.find(args[0])
    return Status("none" if value is None else _TYPES[type(value)])


@command("EXPIRE", 2, writes=True)
def _expire(db: Keyspace, args: list[bytes]) -> int:
    return int(db.expire(args[0], db.now_ms + parse_int(args[1]) * 1000))


@command("PEXPIRE", 2, writes=True)
def _pexpire(db: Keyspace, args: list[bytes]) -> int:
    if len(args) > 2:
        condition, expiry = args[2].upper(), db.expiries.get(args[0])
        later = db.now_ms + parse_int(args[1])
        if condition == b"GT" and (expiry is None or later <= expiry):
            return 0
        if condition == b"NX" and expiry is not None:
            return 0
    return int(db.expire(args[0], db.now_ms + parse_int(args[1])))


@command("EXPIREAT", 2, writes=True)
def _expireat(db: Keyspace, args: list[bytes]) -> int:
    return int(db.expire(args[0], parse_int(args[1]) * 1000))


@command("PEXPIREAT", 2, writes=True)
def _pexpireat(db: Keyspace, args: list[bytes]) -> int:
    return int(db.expire(args[0], parse_int(args[1])))


@command("PERSIST", writes=True)
def _persist(db: Keyspace, args: list[bytes]) -> int:
    if db.find(args[0]) is None or args[0] not in db.expiries:
        return 0
    db.remember(args[0])
    del db.expiries[args[0]]
    return 1


@command("PTTL")
def _pttl(db: Keyspace, args: list[bytes]) -> int:
    if db.find(args[0]) is None:
        return -2
    expiry = db.expiries.get(args[0])
    return -1 if expiry is None else expiry - db.now_ms


@command("TTL")
def _ttl(db: Keyspace, args: list[bytes]) -> int:
    left = _pttl(db, args)
    return left if left < 0 else (left + 500) // 1000


@command("KEYS")
def _keys(db: Keyspace, args: list[bytes]) -> list[bytes]:
    pattern = args[0].decode()
    return [
        key
        for key in sorted(db.values)
        if fnmatch.fnmatchcase(key.decode(errors="replace"), pattern) and db.find(key) is not None
    ]


@command("SCAN")
def _scan(db: Keyspace, args: list[bytes]) -> list[Any]:
    options = _parse_options(args[1:])
    found = _keys(db, [options.get(b"MATCH", b"*")])
    if b"TYPE" in options:
        found = [key for key in found if _type(db, [key]) == options[b"TYPE"].decode()]
    return [b"0", found]


def _parse_options(words: list[bytes]) -> dict[bytes, bytes]:
    return {words[at].upper(): words[at + 1] for at in range(0, len(words) - 1, 2)}


# Strings


@command("GET")
def _get(db: Keyspace, args: list[bytes]) -> bytes | None:
    return db.read(args[0], bytes)


@command("SET", 2, grows=True)
def _set(db: Keyspace, args: list[bytes]) -> Any:
    key, value, words = args[0], args[1], [word.upper() for word in args[2:]]
    old = db.read(key, bytes) if b"GET" in words else db.find(key)
    if (b"NX" in words and old is not None) or (b"XX" in words and old is None):
        return old if b"GET" in words else None
    expiry = db.expiries.get(key)
    db.put(key, value)
    if b"EX" in words:
        db.expire(key, db.now_ms + parse_int(args[3 + words.index(b"EX")]) * 1000)
    elif b"PX" in words:
        db.expire(key, db.now_ms + parse_int(args[3 + words.index(b"PX")]))
    elif b"KEEPTTL" in words and expiry is not None:
        db.expiries[key] = expiry
    return old if b"GET" in words else Status("OK")


@command("MGET")
def _mget(db: Keyspace, args: list[bytes]) -> list[bytes | None]:
    values = (db.find(key) for key in args)
    return [value if isinstance(value, bytes) else None for value in values]


def _add_to_string(db: Keyspace, key: bytes, amount: int) -> int:
    number = parse_int(db.read(key, bytes) or b"0") + amount
    db.remember(key)
    db.values[key] = b"%d" % number
    return number


@command("INCR", grows=True)
def _incr(db: Keyspace, args: list[bytes]) -> int:
    return _add_to_string(db, args[0], 1)


@command("DECR", grows=True)
def _decr(db: Keyspace, args: list[bytes]) -> int:
    return _add_to_string(db, args[0], -1)


@command("INCRBY", 2, grows=True)
def _incrby(db: Keyspace, args: list[bytes]) -> int:
    return _add_to_string(db, args[0], parse_int(args[1]))


@command("SETRANGE", 3, grows=True)
def _setrange(db: Keyspace, args: list[bytes]) -> int:
    old, offset = db.read(args[0], bytes) or b"", parse_int(args[1])
    if not args[2]:
        return len(old)
    new = old.ljust(offset, b"\0")[:offset] + args[2] + old[offset + len(args[2]) :]
    db.remember(args[0])
    db.values[args[0]] = new
    return len(new)


# Hashes


@command("HSET", 3, grows=True)
def _hset(db: Keyspace, args: list[bytes]) -> int:
    if len(args) % 2 == 0:
        raise RedisError("ERR wrong number of arguments for 'hset' command")
    hash_, added = db.write(args[0], dict), 0
    for at in range(1, len(args), 2):
        added += args[at] not in hash_
        hash_[args[at]] = args[at + 1]
    return added


@command("HMSET", 3, grows=True)
def _hmset(db: Keyspace, args: list[bytes]) -> Status:
    _hset(db, args)
    return Status("OK")


@command("HSETNX", 3, grows=True)
def _hsetnx(db: Keyspace, args: list[bytes]) -> int:
    known = db.read(args[0], dict)
    if known is not None and args[1] in known:
        return 0
    db.write(args[0], dict)[args[1]] = args[2]
    return 1


@command("HGET", 2)
def _hget(db: Keyspace, args: list[bytes]) -> bytes | None:
    return (db.read(args[0], dict) or {}).get(args[1])


@command("HMGET", 2)
def _hmget(db: Keyspace, args: list[bytes]) -> list[bytes | None]:
    hash_ = db.read(args[0], dict) or {}
    return [hash_.get(field) for field in args[1:]]


@command("HGETALL")
def _hgetall(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return [text for pair in (db.read(args[0], dict) or {}).items() for text in pair]


@command("HKEYS")
def _hkeys(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return list(db.read(args[0], dict) or ())


@command("HVALS")
def _hvals(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return list((db.read(args[0], dict) or {}).values())


@command("HLEN")
def _hlen(db: Keyspace, args: list[bytes]) -> int:
    return len(db.read(args[0], dict) or ())


@command("HEXISTS", 2)
def _hexists(db: Keyspace, args: list[bytes]) -> int:
    return int(args[1] in (db.read(args[0], dict) or ()))


@command("HDEL", 2, writes=True)
def _hdel(db: Keyspace, args: list[bytes]) -> int:
    hash_ = db.read(args[0], dict)
    if hash_ is None or not any(field in hash_ for field in args[1:]):
        return 0
    db.remember(args[0])
    removed = sum(hash_.pop(field, None) is not None for field in args[1:])
    db.delete_empty(args[0])
    return removed


@command("HINCRBY", 3, grows=True)
def _hincrby(db: Keyspace, args: list[bytes]) -> int:
    hash_ = db.write(args[0], dict)
    try:
        number = int(hash_.get(args[1], b"0")) + parse_int(args[2])
    except ValueError:
        raise RedisError("ERR hash value is not an integer") from None
    hash_[args[1]] = b"%d" % number
    return number


@command("HINCRBYFLOAT", 3, grows=True)
def _hincrbyfloat(db: Keyspace, args: list[bytes]) -> bytes:
    hash_ = db.write(args[0], dict)
    number = parse_float(hash_.get(args[1], b"0")) + parse_float(args[2])
    hash_[args[1]] = format_float(number)
    return hash_[args[1]]


@command("HSCAN", 2)
def _hscan(db: Keyspace, args: list[bytes]) -> list[Any]:
    """Return a page; unlike in Redis, a deletion between two calls can hide a field."""
    options = _parse_options(args[2:])
    fields = list((db.read(args[0], dict) or {}).items())
    start, count = parse_int(args[1]), parse_int(options.get(b"COUNT", b"10"))
    pattern, page = options.get(b"MATCH", b"*"), fields[start : start + count]
    flat = [part for pair in page if fnmatch.fnmatchcase(pair[0], pattern) for part in pair]
    stop = start + count
    return [b"%d" % (stop if stop < len(fields) else 0), flat]


# Sets and lists


@command("SADD", 2, grows=True)
def _sadd(db: Keyspace, args: list[bytes]) -> int:
    set_ = db.write(args[0], set)
    before = len(set_)
    set_.update(args[1:])
    return len(set_) - before


@command("SREM", 2, writes=True)
def _srem(db: Keyspace, args: list[bytes]) -> int:
    set_ = db.change(args[0], set)
    if set_ is None:
        return 0
    before = len(set_)
    set_.difference_update(args[1:])
    removed = before - len(set_)
    db.delete_empty(args[0])
    return removed


@command("SMEMBERS")
def _smembers(db: Keyspace, args: list[bytes]) -> list[bytes]:
    return sorted(db.read(args[0], set) or ())


@command("SISMEMBER", 2)
def _sismember(db: Keyspace, args: list[bytes]) -> int:
    return int(args[1] in (db.read(args[0], set) or ()))


@command("SCARD")
def _scard(db: Keyspace, args: list[bytes]) -> int:
    return len(db.read(args[0], set) or ())


@command("RPUSH", 2, grows=True)
def _rpush(db: Keyspace, args: list[bytes]) -> int:
    list_ = db.write(args[0], list)
    list_.extend(args[1:])
    return len(list_)


@command("LRANGE", 3)
def _lrange(db: Keyspace, args: list[bytes]) -> list[bytes]:
    list_ = db.read(args[0], list) or []
    return [list_[at] for at in resolve_range(args[1], args[2], len(list_))]


@command("LLEN")
def _llen(db: Keyspace, args: list[bytes]) -> int:
    return len(db.read(args[0], list) or ())


def resolve_range(start: bytes, stop: bytes, size: int) -> range:
    """Return the positions of a range with inclusive, possibly negative bounds."""
    first, last = parse_int(start), parse_int(stop)
    first = max(0, first + size) if first < 0 else first
    last = last + size if last < 0 else min(last, size - 1)
    return range(first, last + 1)
