"""Lua script loader: loads each script once, and checks arguments against the file header.

Scripts are in `chatserver/hot/scripts` and in the folder `scripts` of each feature. A header
declares the script's inputs: ``-- key NAME TYPE``, ``-- arg NAME TYPE``, and for batch scripts
``-- item key …`` and ``-- item arg …``. ``more key`` and ``more arg`` declare a variable number of
inputs after an item. Callers pass inputs by name; a missing or undeclared name raises TypeError.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

Value = str | bytes | int


class Packed(bytes):
    """A complete call, encoded in the Redis protocol; `key` is one of its keys."""

    key: str


_HEADER = re.compile(r"^--\s+(item |more )?(key|arg) (\w+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script and the names of its inputs, in order."""

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    item_keys: tuple[str, ...]
    item_args: tuple[str, ...]
    more_keys: tuple[str, ...]
    more_args: tuple[str, ...]

    def bind(
        self,
        keys: Mapping[str, Value] | None = None,
        args: Mapping[str, Value] | None = None,
        items: Iterable[Mapping[str, Value]] = (),
    ) -> tuple[list[Value], list[Value]]:
        """Return `(KEYS, ARGV)` in the script's order.

        Raises:
            TypeError: a name is missing or unknown.
        """
        keys, args = keys or {}, args or {}
        _check(self.name, "key", self.keys, keys)
        _check(self.name, "arg", self.args, args)
        key_list: list[Value] = [keys[name] for name in self.keys]
        arg_list: list[Value] = [args[name] for name in self.args]
        expected = self.item_keys + self.item_args
        for item in items:
            _check(self.name, "item", expected, item)
            key_list += [item[name] for name in self.item_keys]
            arg_list += [item[name] for name in self.item_args]
        return key_list, arg_list


def _check(
    script: str, what: str, expected: tuple[str, ...], arguments: Mapping[str, Value]
) -> None:
    if arguments.keys() != set(expected):
        raise TypeError(f"{script}.lua: expected {what} names {expected}, got {tuple(arguments)}")


@functools.cache
def load_script(name: str) -> Script:
    """Load ``<name>.lua``."""
    source = _find_scripts()[name].read_text()
    head = source.split("\nlocal ", 1)[0]
    arguments: dict[tuple[str, str], list[str]] = {}
    for group, part, label in _HEADER.findall(head):
        arguments.setdefault((group.strip(), part), []).append(label)

    def names(group: str, what: str) -> tuple[str, ...]:
        return tuple(arguments.get((group, what), ()))

    return Script(
        name=name,
        source=source,
        sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        keys=names("", "key"),
        args=names("", "arg"),
        item_keys=names("item", "key"),
        item_args=names("item", "arg"),
        more_keys=names("more", "key"),
        more_args=names("more", "arg"),
    )


@functools.cache
def allow_oom(script: Script) -> Script:
    """Return a variant of a script that also runs when Redis is out of memory."""
    source = "#!lua flags=allow-oom\n" + _strip_shebang(script)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return dataclasses.replace(script, source=source, sha=sha)


def combine(*scripts: Script) -> str:
    """Return the source of a script that runs several scripts in order, as one atomic call.

    KEYS has the keys of all scripts. ARGV starts with two numbers per script: how many keys and how
    many arguments it has. The combined script returns each script's reply.
    """
    parts = [
        f"local function {script.name}(KEYS, ARGV)\n{_strip_shebang(script)}\nend\n"
        for script in dict.fromkeys(scripts)
    ]
    calls = ", ".join(f"{script.name}(next_inputs())" for script in scripts)
    return (
        "#!lua flags=allow-oom\n"
        + "".join(parts)
        + f"local size, key, argument = 0, 0, {2 * len(scripts)}\n"
        + _NEXT_INPUTS
        + f"return {{{calls}}}"
    )


_NEXT_INPUTS = """local function next_inputs()
  local keys, args = {}, {}
  for i = 1, tonumber(ARGV[size + 1]) do keys[i] = KEYS[key + i] end
  for i = 1, tonumber(ARGV[size + 2]) do args[i] = ARGV[argument + i] end
  key, argument, size = key + #keys, argument + #args, size + 2
  return keys, args
end
"""


def _strip_shebang(script: Script) -> str:
    return script.source.split("\n", 1)[1] if script.source.startswith("#!") else script.source


@functools.cache
def _find_scripts() -> dict[str, Path]:
    """Return the path of each script by its name."""
    source = Path(__file__).parents[2]
    paths = (*source.glob("hot/scripts/*.lua"), *source.glob("features/*/scripts/*.lua"))
    return {path.stem: path for path in paths}


def all_scripts() -> list[Script]:
    """Return all scripts, sorted by name."""
    return [load_script(name) for name in sorted(_find_scripts())]
