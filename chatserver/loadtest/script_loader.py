"""Load scripts: reads, runs and checks the Python file that defines the users of a load test."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from chatserver.loadtest.plan import ScriptFile

if TYPE_CHECKING:
    from chatserver.loadtest.script import LoadUser

SCRIPT_BYTES_MAX: Final = 256_000
CHATS_MAX: Final = 10
MEMBERS_MAX: Final = 100_000
USERS_DEFAULT: Final = 50
USERS_MAX: Final = 1_000_000
DURATION_S_DEFAULT: Final = 30.0
DURATION_S_MAX: Final = 2700.0
TRACEBACK_CHARS_MAX: Final = 4000

_CHAT_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,19}")
_MODULE: Final = "load_script"
_HINT: Final = "see docs/load.md, 'Your own scripts'"


class ScriptError(Exception):
    """The script cannot be used; the message names the file, the line and what to do."""


class LoadScript(msgspec.Struct, frozen=True):
    """A loaded script: its function, and the values that it declares."""

    file: ScriptFile
    user: Callable[[LoadUser], Awaitable[None]]
    about: str
    users: int
    duration_s: float


class _ScriptImporter(importlib.abc.ExecutionLoader):
    """Imports a module from text that was read before, without a bytecode cache."""

    def __init__(self, path: str, text: bytes) -> None:
        self._path, self._text = path, text

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._text)


def load_script(path: Path, sha256: str | None = None) -> LoadScript:
    """Run the script's module and check what it declares.

    Raises:
        ScriptError: the script is not valid, or its digest is not `sha256`.
    """
    path = path.absolute()
    text = _read(path)
    digest = hashlib.sha256(text).hexdigest()
    if sha256 is not None and digest != sha256:
        raise ScriptError(f"{path}: the file was changed while the test started; run it again")
    module = _import(path, text)
    user = getattr(module, "user", None)
    if user is None:
        raise ScriptError(
            f"{path}: no function `user`; add `async def user(user: LoadUser)`, {_HINT}"
        )
    if not inspect.iscoroutinefunction(user):
        line = getattr(getattr(user, "__code__", None), "co_firstlineno", 1)
        raise ScriptError(f"{path}:{line}: `user` must be a function: `async def user(user)`")
    if len(inspect.signature(user).parameters) != 1:
        line = user.__code__.co_firstlineno
        raise ScriptError(f"{path}:{line}: `user` must have one parameter: `async def user(user)`")
    about = (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")
    declared = _Declarations(path, text, module)
    users = declared.get_number("USERS", USERS_DEFAULT, low=2, high=USERS_MAX)
    duration_s = declared.get_number("DURATION_S", DURATION_S_DEFAULT, low=0.5, high=DURATION_S_MAX)
    return LoadScript(
        file=ScriptFile(str(path), digest, declared.get_chats()),
        user=user,
        about=about[:300],
        users=int(users),
        duration_s=duration_s,
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as exc:
        raise ScriptError(f"{path}: {exc.strerror}") from exc
    if len(text) > SCRIPT_BYTES_MAX:
        raise ScriptError(f"{path}: larger than {SCRIPT_BYTES_MAX:,} bytes; import the rest")
    return text


def _import(path: Path, text: bytes) -> object:
    importer = _ScriptImporter(str(path), text)
    spec = importlib.util.spec_from_loader(_MODULE, importer)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses look up their module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        importer.exec_module(module)
    except SyntaxError as exc:
        raise ScriptError(f"{exc.filename or path}:{exc.lineno or 1}: {exc.msg}") from exc
    except (Exception, SystemExit) as exc:
        raise ScriptError(_describe(path, exc)) from exc
    return module


def _describe(path: Path, exc: BaseException) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(exc.__traceback__)
        if frame.filename == str(path)
    ]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    return f"{place}: {type(exc).__name__}: {exc}"


def format_script_error(exc: BaseException, path: str) -> str:
    """Return the traceback of an exception in a user, from the first line of the script on."""
    tb = exc.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != path:
        tb = tb.tb_next
    lines = traceback.format_exception(type(exc), exc, tb or exc.__traceback__)
    return "".join(lines)[-TRACEBACK_CHARS_MAX:].rstrip()


@attrs.frozen
class _Declarations:
    """The values that a script declares; errors name the line."""

    path: Path
    text: bytes
    module: object

    def get_chats(self) -> dict[str, int]:
        # `Any`: a script may declare anything.
        chats: Any = getattr(self.module, "CHATS", {"direct": 2})
        place = self._find_place("CHATS")
        if not isinstance(chats, dict) or not 0 < len(chats) <= CHATS_MAX:
            raise ScriptError(
                f"{place} must map 1 to {CHATS_MAX} names to numbers of members, "
                "for example {'team': 8}"
            )
        for name, members in chats.items():
            if not isinstance(name, str) or _CHAT_NAME.fullmatch(name) is None:
                raise ScriptError(
                    f"{place}: name {name!r} must have 1 to 20 lower-case letters, digits and -, "
                    "and begin with a letter"
                )
            if type(members) is not int or not 2 <= members <= MEMBERS_MAX:
                raise ScriptError(
                    f"{place}: {name} must have 2 to {MEMBERS_MAX:,} members, not {members!r}"
                )
        if list(chats.values()).count(2) > 1:
            raise ScriptError(
                f"{place}: only one chat can have 2 members, because two users have one "
                "direct chat; use 3 for a small group"
            )
        return dict(chats)

    def get_number(self, name: str, default: float, *, low: float, high: float) -> float:
        value: Any = getattr(self.module, name, default)
        types = (int,) if type(default) is int else (int, float)
        if type(value) not in types or not low <= value <= high:
            place = self._find_place(name)
            raise ScriptError(f"{place} must be {low:g} to {high:,.0f}, not {value!r}")
        return float(value)

    def _find_place(self, name: str) -> str:
        found = re.search(rb"^" + name.encode() + rb"\b", self.text, re.MULTILINE)
        line = self.text.count(b"\n", 0, found.start()) + 1 if found else 1
        return f"{self.path}:{line}: {name}"
