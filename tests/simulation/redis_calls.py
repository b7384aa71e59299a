"""Random Redis calls for the contract test: those that the product uses, on few keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from chatserver.hot.redis.scripts import load_script

Words = list[bytes]

_FIELDS = [b"a", b"b", b"c", b"d"]
_NUMBERS = [b"1", b"2", b"3", b"10", b"2.5", b"-1"]


class Calls:
    """Draws calls from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._last = 0

    def iter(self, count: int) -> Iterator[Words]:
        kinds: list[Callable[[], Words]] = [
            self._string, self._hash, self._hash, self._zset, self._zset, self._stream,
            self._stream, self._set, self._key, self._script,
        ]  # fmt: skip
        for _ in range(count):
            yield self._rng.choice(kinds)()

    def _pick(self, options: list[bytes]) -> bytes:
        return self._rng.choice(options)

    def _key_of(self, kind: bytes) -> bytes:
        # Sometimes the key of another type, whose error must be the same.
        return self._rng.choice([kind + b"1", kind + b"1", kind + b"2", b"hash1"])

    def _string(self) -> Words:
        key, value = self._key_of(b"text"), self._pick(_NUMBERS)
        return self._rng.choice(
            [
                [b"SET", key, value], [b"GET", key], [b"SET", key, value, b"NX"],
                [b"INCR", b"count"], [b"DECR", b"count"], [b"INCRBY", b"count", b"5"],
                [b"SET", key, value, b"EX", b"1000", b"GET"], [b"SETRANGE", key, b"2", b"xy"],
                [b"MGET", key, b"none", b"hash1"],
            ]
        )  # fmt: skip

    def _hash(self) -> Words:
        key, field, other = self._key_of(b"hash"), self._pick(_FIELDS), self._pick(_FIELDS)
        return self._rng.choice(
            [
                [b"HSET", key, field, self._pick(_NUMBERS), other, b"7"], [b"HGET", key, field],
                [b"HMGET", key, field, other], [b"HDEL", key, field, other], [b"HLEN", key],
                [b"HSETNX", key, field, b"8"], [b"HINCRBY", key, b"n", b"3"], [b"HKEYS", key],
                [b"HEXISTS", key, field], [b"HINCRBYFLOAT", key, b"f", b"0.5"],
                [b"HGETALL", key], [b"HVALS", key],
            ]
        )  # fmt: skip

    def _zset(self) -> Words:
        key, member = self._key_of(b"zset"), self._pick(_FIELDS)
        low, high = sorted((self._rng.randint(-2, 11), self._rng.randint(-2, 11)))
        bounds = [self._pick([b"%d", b"(%d"]) % low, self._pick([b"%d", b"(%d"]) % high]
        flag = self._pick([b"NX", b"XX", b"GT", b"LT", b"CH"])
        return self._rng.choice(
            [
                [b"ZADD", key, self._pick(_NUMBERS), member], [b"ZSCORE", key, member],
                [b"ZADD", key, flag, self._pick(_NUMBERS), member], [b"ZCARD", key],
                [b"ZREM", key, member], [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
                [b"ZRANGE", key, b"1", b"2"], [b"ZREVRANGE", key, b"0", b"1"],
                [b"ZRANGEBYSCORE", key, *bounds], [b"ZCOUNT", key, *bounds],
                [b"ZRANGEBYSCORE", key, b"-inf", b"+inf", b"WITHSCORES", b"LIMIT", b"1", b"2"],
                [b"ZREMRANGEBYSCORE", key, *bounds], [b"ZREMRANGEBYRANK", key, b"0", b"0"],
                [b"ZINCRBY", key, b"1.5", member], [b"ZPOPMIN", key], [b"ZPOPMAX", key],
                [b"ZMSCORE", key, member, b"none"], [b"ZADD", key, b"1", b"x", b"2", b"y"],
            ]
        )  # fmt: skip

    def _stream(self) -> Words:
        key = self._key_of(b"stream")
        self._last += self._rng.choice((0, 1, 1, 1, 5))
        new = b"%d-%d" % (self._last, self._rng.randint(0, 3))
        some = b"%d-0" % self._rng.randint(0, max(1, self._last))
        return self._rng.choice(
            [
                [b"XADD", key, new, b"f", b"v"], [b"XADD", key, new, b"f", b"v"],
                [b"XADD", key, b"NOMKSTREAM", b"MAXLEN", b"3", new, b"f", b"v", b"g", b"w"],
                [b"XLEN", key], [b"XRANGE", key, b"-", b"+"], [b"XRANGE", key, some, b"+"],
                [b"XRANGE", key, b"(" + some, b"+", b"COUNT", b"2"], [b"XDEL", key, some],
                [b"XREVRANGE", key, b"+", b"-", b"COUNT", b"2"], [b"XTRIM", key, b"MINID", some],
                [b"XREAD", b"COUNT", b"2", b"STREAMS", key, some],
                [b"XGROUP", b"CREATE", key, b"g", b"0", b"MKSTREAM"],
                [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"2", b"STREAMS", key, b">"],
                [b"XACK", key, b"g", some], [b"XREVRANGE", key, some, b"-"],
            ]
        )  # fmt: skip

    def _set(self) -> Words:
        key, member = self._key_of(b"set"), self._pick(_FIELDS)
        return self._rng.choice(
            [
                [b"SADD", key, member, b"x"], [b"SREM", key, member], [b"SCARD", key],
                [b"SISMEMBER", key, member], [b"SMEMBERS", key],
            ]
        )  # fmt: skip

    def _key(self) -> Words:
        key = self._pick([b"text1", b"hash1", b"zset1", b"stream1", b"set1", b"none"])
        return self._rng.choice(
            [
                [b"EXISTS", key, b"hash2"], [b"TYPE", key], [b"PERSIST", key],
                [b"EXPIRE", key, b"1000"], [b"PEXPIRE", key, b"900000", b"GT"],
                [b"TTL", b"none"], [b"DEL", key], [b"UNLINK", key, b"none"],
            ]
        )  # fmt: skip

    def _script(self) -> Words:
        source = self._pick(
            [
                b"return {1, 'a', {2, false, 'b'}, 3.7, -2.5}",
                b"return redis.call('HGETALL', KEYS[1])",
                b"redis.call('ZADD', KEYS[1], 12345678901, 'big') "
                b"return redis.call('ZSCORE', KEYS[1], 'big')",
                b"return {redis.call('HGET', KEYS[1], 'none'), redis.call('TYPE', KEYS[1]).ok}",
                b"return redis.call('XRANGE', KEYS[1], '-', '+')",
                b"return struct.pack('>I5I7', 77, 1800000000123456)",
                b"return {struct.unpack('>I5I7', struct.pack('>I5I7', 77, 1800000000123456))}",
                b"local t = cjson.decode(ARGV[1]) return {t.a, #t.b, cjson.encode(t.b)}",
                b"return redis.call('HSET', KEYS[1], 'n', 5, 'm', 2.5)",
                b"return redis.error_reply('MINE no')",
                b"return #ARGV + #KEYS",
            ]
        )
        key = self._key_of(b"hash")
        if self._rng.random() < 0.2:
            return self._transaction(key)
        return [b"EVAL", source, b"1", key, b'{"a":"x","b":[1,"two",3]}']

    def _transaction(self, key: bytes) -> Words:
        """Draw a script of the product that runs other calls; some of them fail."""
        kinds = (self._string, self._hash, self._zset)
        calls = [self._rng.choice(kinds)() for _ in range(self._rng.randint(0, 4))]
        words = [word for call in calls for word in (b"%d" % len(call), *call)]
        return [b"EVAL", load_script("transaction").source.encode(), b"1", key, *words]
