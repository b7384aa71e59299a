"""Every command in an environment with each extra alone: no traceback, and what to install."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chatserver.cli.main import COMMANDS
from chatserver.extras import EXTRAS
from tests.support.hidden_extras import find_hidden_modules, list_extras
from tests.support.servers.processes import free_port

ROOT = Path(__file__).parents[2]
# Arguments with which a command does as much as possible without a server.
ARGUMENTS = {
    "analytics": ["query", "select 1"],
    "audit": ["--all"],
    "chat": ["--as", "alice", "--with", "bob"],
    "companion": ["list"],
    "cost": ["report"],
    "dead-letters": ["list"],
    "encryption": ["status"],
    "keys": ["list"],
    "load": ["direct", "--users", "2", "--duration", "1"],
    "migrate": ["status"],
    "plan": ["--users", "1000"],
    "restore": ["chat", "c1"],
    "search": ["status"],
    "shards": ["show", "c1"],
    "tables": ["apply"],
    "tenants": ["list"],
    "token": ["--user", "alice"],
    "trace": ["m1"],
    "webhooks": ["list"],
    "worker": ["all"],
}


def run_commands(extras: list[str], commands: list[list[str]], folder: Path) -> list[Any]:
    """Run the commands in an environment with these extras, whose stores do not respond."""
    hidden = find_hidden_modules(extras)
    env = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    dead = f"127.0.0.1:{free_port()}"
    env |= {
        "CHAT_REDIS_URL": f"redis://{dead}/0",
        "CHAT_AUTH_SECRET": "s" * 32,
        "CHAT_WARM_ENDPOINT": f"http://{dead}",
        "CHAT_WARM_ACCESS_KEY": "a",
        "CHAT_WARM_SECRET_KEY": "b",
        "CHAT_WARM_CALL_TIMEOUT_S": "0.5",
        "CHAT_COLD_ENDPOINT": f"http://{dead}",
        "CHAT_COLD_ACCESS_KEY": "a",
        "CHAT_COLD_SECRET_KEY": "b",
        "CHAT_COLD_CALL_TIMEOUT_S": "0.5",
        "CHAT_SEARCH_INDEX": "s3",
        "CHAT_ANALYTICS_EXPORT": "metadata",
        "PYTHONPATH": str(ROOT),
    }
    request = {"hidden": sorted(hidden), "commands": commands, "folder": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hidden_extras"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of each command without any extra, with and without `--help`."""
    commands = [[name, *ARGUMENTS.get(name, [])] for name in COMMANDS]
    helps = [[name, "--help"] for name in COMMANDS]
    results = run_commands([], [*commands, *helps], tmp_path_factory.mktemp("bare"))
    assert_says_what_to_install(results)
    assert len(results) == 2 * len(COMMANDS)
    return {result["arguments"][0]: result["output"] for result in results[: len(COMMANDS)]}


def assert_says_what_to_install(results: list[Any]) -> None:
    """Each command has started or named extras: it ended with a code and without a traceback."""
    bad = [
        result
        for result in results
        if "Traceback" in result["output"]
        or "No module named" in result["output"]
        or result["code"] not in (0, 1, 2)
        or ("--help" in result["arguments"] and result["code"] != 0)
    ]
    assert bad == []


def find_named_extras(output: str) -> set[str]:
    """Return the extras that an output says to install."""
    named = re.search(r"pip install '\.\[([a-z,]+)\]'", output)
    return set(named[1].split(",")) if named else set()


def test_every_command_without_extras_says_what_to_install(bare: dict[str, str]) -> None:
    """`dev` and `vapid` name all that they need."""
    assert find_named_extras(bare["dev"]) == {"api", "aws", "media", "push"}
    assert find_named_extras(bare["vapid"]) == {"push"}


@pytest.mark.parametrize("extra", list_extras())
def test_every_command_that_needs_an_extra_gets_further_with_it(
    extra: str, bare: dict[str, str], tmp_path: Path
) -> None:
    """It starts or names another extra. With more libraries, the other commands do not fail."""
    names = [name for name in COMMANDS if extra in find_named_extras(bare[name])]

    results = run_commands([extra], [[name, *ARGUMENTS.get(name, [])] for name in names], tmp_path)

    assert_says_what_to_install(results)
    assert len(results) == len(names)
    for result in results:
        assert extra not in find_named_extras(result["output"]), result


def test_every_optional_module_that_the_code_imports_belongs_to_an_extra() -> None:
    """Otherwise its absence would be a traceback."""
    hidden = find_hidden_modules([])
    imported: set[str] = set()
    for top in ("chatserver", "workers"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                match node:
                    case ast.Import(names=names):
                        imported |= {each.name.partition(".")[0] for each in names}
                    case ast.ImportFrom(module=str(module), level=0):
                        imported.add(module.partition(".")[0])
    optional = {name for name in imported & hidden if not name.startswith("types_")}

    assert optional - {name for modules in EXTRAS.values() for name in modules} == set()
    assert set(EXTRAS) == set(list_extras())
