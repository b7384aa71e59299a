"""What no line of the product may do, read from its source: rows 8, 13, 24 and 25, sections 5, 7.

These are the checks of a linter for which no rule exists. Each list of exceptions is short and
complete: a new one has to be written down here, with its reason.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "chatserver").rglob("*.py"), *(ROOT / "workers").rglob("*.py")])
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}
SCRIPTS = sorted((ROOT / "chatserver" / "hot" / "scripts").glob("*.lua"))


NODES = [(name, node) for name, tree in TREES.items() for node in ast.walk(tree)]


def iter_strings(tree: ast.AST) -> Iterator[str]:
    """Every text of a module that is no docstring, with the constant parts of f-strings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text


def _expressions_in(node: ast.AST) -> Iterator[ast.expr]:
    """The values of `...Expression` in a request, or set in one later."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        pairs = [(node.targets[0].slice, node.value)]
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        pairs = [(node.target.slice, node.value)]
    for key, value in pairs:
        if isinstance(key, ast.Constant) and str(key.value).endswith("Expression"):
            yield value


def test_row_13_no_expression_of_dynamodb_is_put_together_from_values() -> None:
    """User input is a value of an expression, never a part of it."""
    found = {
        (name.rpartition("/")[2], ast.unparse(part.value))
        for name, node in NODES
        for expression in _expressions_in(node)
        for part in ast.walk(expression)
        if isinstance(part, ast.FormattedValue)
    }

    # All are names of attributes, which are constants of ours, or made from such.
    assert found <= {
        ("sessions.py", "name"),
        ("backfill.py", "k"),  # SET or REMOVE
        ("backfill.py", "', '.join(v)"),  # placeholders
        ("sharded_chats.py", "changed"),
        ("sharded_chats.py", "', '.join(changes)"),  # placeholders
        ("checkpoints.py", "sets"),
        ("reencryption.py", "n"),  # numbers of placeholders
        ("tenancy.py", "others"),  # the filter of whoever asks, with the tenant's beside it
        ("tenancy.py", "own"),
        ("message_changes.py", "removes"),
        ("message_changes.py", "sets"),
        ("jobs.py", "sets"),
        ("counts.py", "adds"),  # placeholders
        ("memberships.py", "Field.STATE"),
        ("memberships.py", "Field.VERSION"),
        ("memberships.py", "name"),
        ("moderation.py", "condition"),
    }


def test_row_24_random_is_for_spreading_only() -> None:
    """Ids and secrets come from `secrets` or the system."""
    users = {
        name
        for name, node in NODES
        if (isinstance(node, ast.Import) and any(each.name == "random" for each in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "random")
    }

    # When somebody reconnects, is pinged or tries again, and whom of a cluster one asks first.
    assert users == {
        "chatserver/domain/jitter.py",
        "chatserver/gateway/process/draining.py",
        "chatserver/gateway/transport/heartbeat.py",
        "chatserver/gateway/process/server.py",
        "chatserver/hot/redis/cluster.py",
        # What made-up people do when.
        "chatserver/loadtest/load_users.py",
        "chatserver/loadtest/arrival_schedule.py",
        "chatserver/loadtest/worker.py",
        # What the development server refuses.
        "chatserver/dev/aws_limits/rules.py",
    }


_SECRET = re.compile(r"(?i)(\bmac\b|hmac|secret|password|passphrase|signature|api_?key|\bhash_?\b)")


def test_row_08_no_secret_is_compared_with_equals() -> None:
    """`hmac.compare_digest`, in whatever module; words of the program may be compared."""
    found = {
        (name, ast.unparse(node))
        for name, node in NODES
        if isinstance(node, ast.Compare)
        and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        and not any(
            isinstance(side, ast.Constant | ast.Compare | ast.List)
            for side in (node.left, *node.comparators)
        )
        and _SECRET.search(ast.unparse(node))
    }

    assert found == {
        # Two settings, at the start, where nobody can measure.
        ("chatserver/auth/host_keys.py", "secret == settings.secret.get_secret_value().encode()"),
    }


_DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}
_DANGEROUS_MODULES = {"pickle", "marshal", "shelve", "yaml", "xml", "tempfile.mktemp", "telnetlib"}


def test_nothing_runs_or_unpickles_what_it_was_given() -> None:
    """No evaluation, no pickles, no shell, no XML parser."""
    for name, node in NODES:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in _DANGEROUS_CALLS, (name, node.lineno)
        if isinstance(node, ast.Import):
            modules = {each.name.split(".")[0] for each in node.names}
            assert modules.isdisjoint(_DANGEROUS_MODULES), (name, node.lineno)
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in _DANGEROUS_MODULES, (name, node.lineno)
        if isinstance(node, ast.keyword) and node.arg in ("shell", "verify", "ssl", "verify_ssl"):
            is_off = isinstance(node.value, ast.Constant) and node.value.value is False
            is_shell = node.arg == "shell"
            assert not is_off and not is_shell, (name, node.arg)


def test_section_5_what_varies_is_never_the_event_of_a_log_line() -> None:
    """An event is a fixed phrase; what users write goes into fields, where it is escaped."""
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    for name, node in NODES:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in levels or not isinstance(node.func.value, ast.Name):
            continue
        if node.func.value.id in ("log", "logger") and node.args:
            event = node.args[0]
            choices = [event.body, event.orelse] if isinstance(event, ast.IfExp) else [event]
            for choice in choices:
                assert isinstance(choice, ast.Constant), (name, node.lineno, ast.unparse(event))


def test_section_7_redis_keys_are_spelled_in_one_place() -> None:
    """A hash tag outside of the key builders would be an unchecked key."""
    tag = re.compile(r"\}:\w|\{p(?![a-z])|\{gw:")  # `{post:str}` is of a path
    found = {
        (name, text)
        for name, tree in TREES.items()
        if name != "chatserver/hot/redis/keys.py"
        for text in iter_strings(tree)
        if tag.search(text)
    }

    assert found == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_section_7_scripts_make_no_keys_and_run_no_text(path: Path) -> None:
    """Keys come as KEYS, values as ARGV; no script is made at run time, and none can be stalled."""
    code = re.sub(r"--.*", "", path.read_text("utf-8"))

    assert not re.search(r"\}:[a-z]", code)
    assert not re.search(r"\b(loadstring|load|dofile|require|setmetatable|_G)\b", code)
    words = {word.upper() for word in re.findall(r"call\(\s*[\"'](\w+)[\"']", code)}
    assert words.isdisjoint({"KEYS", "EVAL", "EVALSHA", "CONFIG", "DEBUG", "FLUSHALL", "SCAN"})


def test_section_7_scripts_are_the_packaged_ones() -> None:
    """EVAL is given the source of a script loaded from its file, or `combine` of several."""
    given = set()
    for _, node in NODES:
        items = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        for first, second in itertools.pairwise(items):
            is_eval = isinstance(first, ast.Constant) and first.value in ("EVAL", "EVALSHA")
            if is_eval and not isinstance(second, ast.Constant):
                given.add(ast.unparse(second))

    assert given == {"script.source", "script.sha", "combine(*scripts)"}


def test_section_7_prefixes_of_sort_keys_are_closed() -> None:
    """A prefix ends with its delimiter, so that no id is the beginning of another's."""
    prefixes = {
        node.value.value
        for name, node in NODES
        if name.startswith("chatserver/warm/")
        and isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and "PREFIX"
        in ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    }
    asked = {
        ast.unparse(node.value)
        for name, node in NODES
        if isinstance(node, ast.keyword) and node.arg == "prefix"
    }

    assert prefixes - {"bodies/"}  # objects in the bucket
    assert all(str(prefix).endswith("#") for prefix in prefixes - {"bodies/"})
    # `OLD` ends with a delimiter, too; without a prefix a partition is read whole.
    names = {
        "PREFIX",
        "_PREFIX",
        "_SEGMENT_PREFIX",
        "_ORPHAN_PREFIX",
        "HEAD_PREFIX",
        "companion + OLD",
    }
    names |= {"None", "_prefix_of(kind)", "prefix"}  # of favorites: `posts#` or `messages#`
    names |= {"PREFIX + word"}  # the user search, which looks for beginnings of words
    assert asked <= names | {"f'{STATUS_ACTIVE}#'", "prefix or None"}
