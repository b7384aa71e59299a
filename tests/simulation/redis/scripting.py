"""Lua scripts of the simulated Redis, on the Lua version of Redis (5.1).

A script is compiled once. Arguments, replies of `redis.call` and results cross between Lua and
Python as flat lists of strings and numbers, because every object that crosses is expensive.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

import lupa.lua51 as lupa

from tests.simulation.redis.encoding import encode
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.table import COMMANDS
from tests.simulation.redis.values import RedisError, Status

# Texts to replace in scripts; only for `tests.simulation.mutants`.
MUTATIONS: list[tuple[bytes, bytes]] = []

# End of a script that only runs calls, such as `transaction`. Without Lua it takes a fifth of the
# time, and half of all calls are such scripts.
_TRANSACTION = b"""
local out, at = {}, 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  out[#out + 1] = redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return out
"""

# Kinds of replies that are passed to Lua.
_SCALAR, _FLAT, _NESTED, _ERROR, _STATUS = range(5)

_PRELUDE = b"""
local py_call, py_pack, py_unpack, py_encode, py_decode = ...
local format, floor, concat = string.format, math.floor, table.concat
local type, tostring = type, tostring

-- Builds a table from a flat list: each list is its size, then its elements.
local function build(words, at)
  local size, out = words[at], {}
  at = at + 1
  for i = 1, size do
    if words[at] == true then
      out[i], at = build(words, at + 1)
    else
      out[i] = words[at]
      at = at + 1
    end
  end
  return out, at
end

local function receive(raises, kind, ...)
  if kind == 0 then return (...) end
  if kind == 1 then return {...} end
  if kind == 2 then return (build({...}, 1)) end
  if kind == 4 then return {ok = (...)} end
  if raises then error({err = (...)}, 0) end
  return {err = (...)}
end

redis = {
  call = function(...) return receive(true, py_call(...)) end,
  pcall = function(...) return receive(false, py_call(...)) end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
  sha1hex = function() error('not simulated') end,
  log = function() end,
}
struct = {
  pack = function(...) return py_pack(...) end,
  unpack = function(...) return py_unpack(...) end,
}
cjson = {
  encode = function(value) return py_encode(value) end,
  decode = function(text) return py_decode(text) end,
  null = false,
}
python = nil

local function encode(value, out)
  local kind = type(value)
  if kind == 'string' then
    out[#out + 1] = '$' .. #value .. '\\r\\n' .. value .. '\\r\\n'
  elseif kind == 'number' then
    value = value >= 0 and floor(value) or -floor(-value)
    out[#out + 1] = format(':%.0f\\r\\n', value)
  elseif kind == 'boolean' then
    out[#out + 1] = value and ':1\\r\\n' or '$-1\\r\\n'
  elseif kind == 'table' then
    if value.err then
      out[#out + 1] = '-' .. value.err .. '\\r\\n'
    elseif value.ok then
      out[#out + 1] = '+' .. value.ok .. '\\r\\n'
    else
      local size = 0
      while value[size + 1] ~= nil do size = size + 1 end
      out[#out + 1] = '*' .. size .. '\\r\\n'
      for i = 1, size do encode(value[i], out) end
    end
  else
    out[#out + 1] = '$-1\\r\\n'
  end
end

local function run(script, keys, ...)
  local words, KEYS, ARGV = {...}, {}, {}
  for i = 1, keys do KEYS[i] = words[i] end
  for i = keys + 1, #words do ARGV[i - keys] = words[i] end
  rawset(_G, 'KEYS', KEYS)
  rawset(_G, 'ARGV', ARGV)
  local is_done, result = pcall(script)
  local out = {}
  if is_done then
    encode(result, out)
  elseif type(result) == 'table' and result.err then
    out[1] = '-' .. result.err .. '\\r\\n'
  else
    out[1] = '-ERR ' .. tostring(result) .. '\\r\\n'
  end
  return concat(out)
end

setmetatable(_G, {
  __newindex = function(_, name)
    error('Script attempted to create global variable ' .. name, 2)
  end,
})
return run, function(source) return loadstring(source, 'user_script') end
"""
# Records the lines of scripts; used for coverage only, because it makes them slow.
_LINE_HOOK = b"""
local getinfo, sethook = debug.getinfo, debug.sethook
return function(lines)
  sethook(function(_, line)
    if not lines[line] and getinfo(2, 'S').source == 'user_script' then lines[line] = true end
  end, 'l')
end
"""


class Scripting:
    """The script cache and the Lua interpreter of one server."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.is_full = False
        self.sources: dict[bytes, bytes] = {}
        self.info: Callable[[list[bytes]], bytes] = lambda _: b""
        # Called before a command of a script is run, by the command's name.
        self.checks: dict[bytes, Callable[[Keyspace, list[bytes]], None]] = {}
        self._compiled: dict[bytes, Any] = {}
        self._transactions: set[bytes] = set()
        self._may_grow = True
        self._ran: dict[bytes, bytes] = {}  # name of a script → source; only for coverage
        self._reached: dict[bytes, Any] = {}  # name of a script → Lua table with its lines
        self._record_lines: Callable[[Any], None] | None = None
        self._lua = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        functions = (self._call, _pack, _unpack, self._encode_json, self._decode_json)
        self._run, self._load = self._lua.execute(_PRELUDE, *functions)

    def record_lines(self) -> None:
        """Record which lines of the scripts run."""
        self._record_lines = self._lua.execute(_LINE_HOOK)

    def list_lines(self) -> list[tuple[bytes, set[int]]]:
        """Return the source of each script that ran, and the lines that ran."""
        return [(self._ran[name], set(lines)) for name, lines in self._reached.items()]

    def load(self, source: bytes) -> bytes:
        """Add a script and return its name."""
        name = _hash(source)
        self.sources[name] = source
        return name

    def forget(self) -> None:
        """Empty the cache."""
        self.sources.clear()

    def is_write(self, name: bytes) -> bool:
        return b"no-writes" not in self.sources[name].partition(b"\n")[0]

    def run(self, name: bytes, keys: int, words: list[bytes]) -> bytes:
        """Run a script; return its encoded reply."""
        source = self.sources[name]
        head = source.partition(b"\n")[0]
        has_flags = head.startswith(b"#!lua")
        if self.is_full and has_flags and b"allow-oom" not in head and b"no-writes" not in head:
            raise RedisError(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > "
                "'maxmemory'"
            )
        self._may_grow = not self.is_full or b"allow-oom" in head
        if name not in self._compiled:
            for old, new in MUTATIONS:
                source = source.replace(old, new)
            compiled = self._load(b"--" + source if has_flags else source)
            if isinstance(compiled, tuple):
                raise RedisError("ERR Error compiling script: " + compiled[1].decode())
            self._compiled[name] = compiled
            if source.endswith(_TRANSACTION):
                self._transactions.add(name)
        if name in self._transactions and self._record_lines is None:
            return self._run_transaction(words[keys:])
        if self._record_lines is not None:
            self._ran[name] = source
            self._record_lines(self._reached.setdefault(name, self._lua.table()))
        return bytes(self._run(self._compiled[name], keys, *words))

    def _run_transaction(self, words: list[bytes]) -> bytes:
        """Run the calls of a transaction; the first that fails ends it, as in Lua."""
        out, replies, at = bytearray(), 0, 0
        while at < len(words):
            end = at + 1 + int(words[at])
            encode(self._run_command(words[at + 1], words[at + 2 : end]), out)
            replies, at = replies + 1, end
        return b"*%d\r\n" % replies + out

    def _call(self, name: bytes, *args: Any) -> tuple[Any, ...]:
        try:
            words = [word if type(word) is bytes else _to_text(word) for word in args]
            return _to_lua(self._run_command(name, words))
        except RedisError as exc:
            return (_ERROR, str(exc).encode())

    def _run_command(self, name: bytes, words: list[bytes]) -> Any:
        """Run a command of a script; return its reply."""
        entry = COMMANDS.get(name)
        if entry is None:
            return self._run_server_command(name, words)
        if entry.needs_memory and not self._may_grow:
            raise RedisError("OOM command not allowed when used memory > 'maxmemory'.")
        if len(words) < entry.args_min:
            raise RedisError("ERR Wrong number of args calling Redis command from script")
        if name in self.checks:
            self.checks[name](self.keyspace, words)
        return entry.run(self.keyspace, words)

    def _run_server_command(self, name: bytes, words: list[bytes]) -> Any:
        match name.upper():
            case b"TIME":
                return [b"%d" % part for part in divmod(self.keyspace.now_us, 1_000_000)]
            case b"INFO":
                return self.info(words)
        raise RedisError(f"ERR Unknown Redis command called from script: {name.decode()}")

    # cjson

    def _encode_json(self, value: Any) -> bytes:
        plain = _to_python(value)
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogateescape"
        )

    def _decode_json(self, text: bytes) -> Any:
        return self._to_table(json.loads(text))

    def _to_table(self, value: Any) -> Any:
        match value:
            case dict():
                pairs = {key.encode(): self._to_table(each) for key, each in value.items()}
                return self._lua.table_from(pairs)
            case list():
                return self._lua.table_from([self._to_table(each) for each in value])
            case str():
                return value.encode()
            case None:
                return False
            case _:
                return value


@functools.cache
def _hash(source: bytes) -> bytes:
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


def _to_text(value: Any) -> bytes:
    """Convert a Lua number to the text that Redis passes to a command."""
    if isinstance(value, bool) or value is None:
        raise RedisError("ERR Lua redis lib command arguments must be strings or integers")
    if isinstance(value, int):
        return b"%d" % value
    return b"%.17g" % value


def _to_lua(reply: Any) -> tuple[Any, ...]:
    kind = type(reply)
    if reply is None:
        return (_SCALAR, False)
    if kind is Status:
        return (_STATUS, reply.encode())
    if kind is str:
        return (_STATUS, reply.encode())
    if kind is not list:
        return (_SCALAR, reply)
    if any(type(each) is list for each in reply):
        words: list[Any] = []
        _flatten(reply, words)
        return (_NESTED, *words)
    return (_FLAT, *(False if each is None else each for each in reply))


def _flatten(reply: list[Any], words: list[Any]) -> None:
    words.append(len(reply))
    for each in reply:
        if type(each) is list:
            words.append(True)
            _flatten(each, words)
        else:
            words.append(False if each is None else each)


def _to_python(value: Any) -> Any:
    if lupa.lua_type(value) != "table":
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    size = len(value)
    if size:
        return [_to_python(value[at]) for at in range(1, size + 1)]
    # cjson writes fields in the order of the Lua table, which is the same in each run.
    return {_to_python(key): _to_python(each) for key, each in value.items()}


def _parse_sizes(layout: bytes) -> list[int]:
    assert layout.startswith(b">I"), layout
    return [int(size) for size in layout[2:].split(b"I")]


def _pack(layout: bytes, *numbers: int) -> bytes:
    sizes = _parse_sizes(layout)
    return b"".join(int(n).to_bytes(size, "big") for size, n in zip(sizes, numbers, strict=True))


def _unpack(layout: bytes, data: bytes) -> tuple[int, ...]:
    numbers, at = [], 0
    for size in _parse_sizes(layout):
        numbers.append(int.from_bytes(data[at : at + size], "big"))
        at += size
    return (*numbers, at + 1)
