"""Runs commands as in an environment without some extras.

``python -m tests.support.hidden_extras`` reads JSON from standard input: `hidden`, the names of the
modules that are not installed, and `commands`, lists of arguments of `chatserver`. It prints
a JSON object per command: exit code and output. Each command runs in a fork, so that the imports
that all commands share are done only once.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions, packages_distributions, requires
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.deadlines import wait_for_pid

COMMAND_S_MAX = 60


def list_extras() -> list[str]:
    """Return the extras that bring libraries, without `all` and `dev`."""
    texts = requires("tierchat") or []
    extras = {
        part.split("==")[1].strip(" \"'")
        for text in texts
        if (part := text.partition(";")[2].rpartition(" and ")[2] or text.partition(";")[2])
        and "extra" in part
    }
    return sorted(extras - {"all", "dev"})


def find_hidden_modules(extras: Sequence[str]) -> set[str]:
    """Return the modules that an environment with only these extras does not have."""
    found: set[tuple[str, str]] = set()
    waiting = [("tierchat", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for text in requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    installed = {name for name, _ in found}
    known = {canonicalize_name(each.name) for each in distributions()}
    return {
        module
        for module, providers in packages_distributions().items()
        if not {canonicalize_name(name) for name in providers} & installed
        and {canonicalize_name(name) for name in providers} <= known
    } - {"tests"}


class _Finder(importlib.machinery.PathFinder):
    """The usual finder, for which the hidden modules do not exist."""

    hidden: frozenset[str] = frozenset()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in cls.hidden:
            return None
        return super().find_spec(fullname, path, target)


def _run_forked(arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            signal.alarm(COMMAND_S_MAX)  # ends a command that hangs
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["chatserver", *arguments]
            _run_command()
        code = wait_for_pid(pid)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return {"arguments": arguments, "code": code, "output": text}


def _run_command() -> None:
    from chatserver.cli.main import main

    code: Any = 0
    try:
        main()
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def run() -> None:
    request = json.load(sys.stdin)
    _Finder.hidden = frozenset(request["hidden"])
    for module in [name for name in sys.modules if name.partition(".")[0] in _Finder.hidden]:
        del sys.modules[module]
    sys.meta_path = [
        _Finder if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path
    ]
    import chatserver.cli.main  # noqa: F401  # once, for all commands

    os.chdir(Path(request["folder"]))
    for arguments in request["commands"]:
        sys.stdout.write(json.dumps(_run_forked(arguments)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run()
