"""Coverage of a run: reached failpoints, error codes and lines of Lua scripts.

It counts what happened, not which code is tested: a fault that never happens is not simulated.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import lupa.lua51 as lupa
import msgspec

from chatserver.hot.redis.scripts import all_scripts
from chatserver.protocol.error_codes import CODES
from chatserver.telemetry import failpoints
from tests.simulation.redis.scripting import Scripting
from tests.simulation.trace import Trace

_ROOT: Final = Path(__file__).parents[2]
_FAILPOINT: Final = re.compile(r'\bfailpoint\(f?"([\w.]+)')
_ERROR: Final = re.compile(rb'"type":"error"[^}]*?"code":"(\w+)"')
_FUNCTION: Final = re.compile(r"local function (\w+)\(KEYS, ARGV\)")


class Coverage(msgspec.Struct):
    """Counts of failpoints and error codes, and the lines of each Lua script that were reached."""

    failpoints: dict[str, int] = {}
    codes: dict[str, int] = {}
    lines: dict[str, set[int]] = {}

    def add(self, other: Coverage) -> None:
        """Add the coverage of another run."""
        self.failpoints = dict(Counter(self.failpoints) + Counter(other.failpoints))
        self.codes = dict(Counter(self.codes) + Counter(other.codes))
        for name, lines in other.lines.items():
            self.lines[name] = self.lines.get(name, set()) | lines

    def describe(self) -> Iterator[str]:
        """Yield the lines of a report: what happened how often, and what never did."""
        yield from _describe_counts("failpoints", self.failpoints, list_failpoints())
        yield from _describe_counts("error codes", self.codes, CODES)
        yield from self._describe_scripts()

    def _describe_scripts(self) -> Iterator[str]:
        lua = lupa.LuaRuntime(encoding=None)
        dump = lua.eval(b"function(source) return string.dump(loadstring(source)) end")
        reached = total = 0
        unused, missed = [], []
        for script in all_scripts():
            source = script.source
            code = b"--" * source.startswith("#!") + source.encode()
            lines, hit = list_lines(bytes(dump(code))), self.lines.get(script.name, set())
            if not hit:
                unused.append(script.name)
                continue
            reached, total = reached + len(lines & hit), total + len(lines)
            texts = source.splitlines()
            missed += [
                f"  {script.name}.lua:{line}: {texts[line - 1].strip()}"
                for line in sorted(lines - hit)
                if texts[line - 1].strip() not in {"end", "else", "}"}
            ]
        yield f"Lua: {reached} of {total} lines of the scripts that ran; never reached:"
        yield from missed
        yield f"Lua scripts that never ran: {', '.join(unused)}"


def _describe_counts(what: str, counts: dict[str, int], known: Iterable[str]) -> Iterator[str]:
    yield f"{what}: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
    # Without the features whose workers are not part of the simulation.
    areas = {name.partition(".")[0] for name in counts}
    missing = [name for name in known if not counts.get(name)]
    near = [name for name in missing if name.partition(".")[0] in areas or "." not in name]
    yield f"{what} that never occurred: {', '.join(near) or 'none'}"
    far = sorted({name.partition(".")[0] for name in set(missing) - set(near)})
    if far:
        yield f"{what} of areas that never occurred: {', '.join(far)}"


def list_failpoints() -> list[str]:
    """Return the names in the sources of the product; an f-string only up to its first value."""
    found = set[str]()
    for folder in ("chatserver", "workers"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(_FAILPOINT.findall(path.read_text()))
    return sorted(found)


class Recorder:
    """Records the coverage of the run in this operating system process."""

    def __init__(self, trace: Trace, scripting: Scripting) -> None:
        self._failpoints: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._scripting = scripting
        scripting.record_lines()
        self._replace_failpoints()
        record_data = trace.data

        def record(source: str, target: str, data: bytes) -> None:
            if source.startswith("gateway"):
                self._codes.update(code.decode() for code in _ERROR.findall(data))
            record_data(source, target, data)

        trace.data = record  # type: ignore[method-assign]

    def _replace_failpoints(self) -> None:
        original = failpoints.failpoint

        def record(name: str) -> None:
            self._failpoints[name] += 1

        for module in [failpoints, *sys.modules.values()]:
            if getattr(module, "failpoint", None) is original:
                vars(module)["failpoint"] = record

    def get(self) -> Coverage:
        """Return what has happened so far."""
        lines: dict[str, set[int]] = {}
        for source, reached in self._scripting.list_lines():
            for name, numbers in split_combined(source.decode(), reached):
                lines[name] = lines.get(name, set()) | numbers
        return Coverage(dict(self._failpoints), dict(self._codes), lines)


def split_combined(source: str, reached: set[int]) -> Iterator[tuple[str, set[int]]]:
    """Yield the lines of each script in a source, which may combine several (`combine`)."""
    starts = {script.name: script.source for script in all_scripts()}
    whole = {text.partition("\n")[2]: name for name, text in starts.items()}
    name = whole.get(source.partition("\n")[2])
    if name is not None:
        yield name, reached
        return
    texts, at = source.splitlines(), 0
    while at < len(texts):
        found = _FUNCTION.fullmatch(texts[at])
        at += 1
        if found and found[1] in starts:
            # The function has the script without its first line, if that is `#!lua`.
            has_flags = starts[found[1]].startswith("#!")
            size = len(starts[found[1]].splitlines()) - has_flags
            yield found[1], {line - at + has_flags for line in reached if at < line <= at + size}
            at += size


def list_lines(chunk: bytes) -> set[int]:
    """Return the lines with code in a chunk of Lua 5.1 bytecode."""
    return _Chunk(chunk).list_lines()


class _Chunk:
    """Reads bytecode: a header, then a function with nested functions."""

    def __init__(self, data: bytes) -> None:
        assert data[:5] == b"\x1bLua\x51", "not Lua 5.1"
        self._data, self._at = data, 12
        self._int, self._size, self._instruction, self._number = data[7], data[8], data[9], data[10]
        self._lines: set[int] = set()

    def list_lines(self) -> set[int]:
        self._read_function()
        return self._lines

    def _read(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "little")

    def _skip(self, prefix: int, unit: int = 1) -> None:
        """Skip a list: its length, in `prefix` bytes, and its elements of `unit` bytes."""
        count = self._read(prefix)
        self._at += unit * count

    def _skip_text(self) -> None:
        self._skip(self._size)

    def _read_function(self) -> None:
        self._skip_text()
        self._at += 2 * self._int + 4
        self._skip(self._int, self._instruction)
        for _ in range(self._read(self._int)):
            self._skip_constant()
        for _ in range(self._read(self._int)):
            self._read_function()
        lines = [self._read(self._int) for _ in range(self._read(self._int))]
        self._lines.update(lines[:-1])  # without the implicit return
        for _ in range(self._read(self._int)):
            self._skip_text()
            self._at += 2 * self._int
        for _ in range(self._read(self._int)):
            self._skip_text()

    def _skip_constant(self) -> None:
        match self._read(1):
            case 1:
                self._at += 1
            case 3:
                self._at += self._number
            case 4:
                self._skip_text()
            case _:
                pass
