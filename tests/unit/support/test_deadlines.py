"""A source rule: no test waits for a child process, a thread or a pipe without a deadline.

pytest's timeout interrupts a test once. A wait without a deadline in its clean-up then lasts until
somebody ends the test run by hand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]
RUNNERS = {"run", "call", "check_call", "check_output"}  # functions of `subprocess`
# Methods that wait for ever if called without arguments.
BLOCKING = {"acquire", "communicate", "join", "wait"}
STREAM_READS = {"read", "readexactly", "readline", "readuntil"}
# Each wait that the checks find, and each event, has one of these words.
WORDS = re.compile(
    r"subprocess|waitpid|os\.wait|stdout|_pipe|Event|\.(acquire|communicate|wait)\(|\.join\(\)"
)


def is_call_of(node: ast.AST, module: str, names: set[str]) -> bool:
    """Return whether `node` calls one of a module's functions by ``module.name``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == module
    )


def has_keyword(call: ast.AST, name: str) -> bool:
    """Return whether a call passes the keyword argument, or passes on unknown ones."""
    assert isinstance(call, ast.Call)
    return any(keyword.arg in (name, None) for keyword in call.keywords)


class UnboundedWaits(ast.NodeVisitor):
    """Collects the waits of a module that have no deadline."""

    def __init__(self, events: set[str]) -> None:
        self.found: list[tuple[int, str]] = []
        self._events = events
        self._is_bounded = False  # inside `asyncio.timeout` or `asyncio.wait_for`
        self._awaited: set[ast.AST] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._is_bounded = self._is_bounded, False
        self.generic_visit(node)
        self._is_bounded = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # name from ast

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        outer = self._is_bounded
        for item in node.items:
            self.visit(item)
            if is_call_of(item.context_expr, "asyncio", {"timeout", "timeout_at"}):
                self._is_bounded = True
        for statement in node.body:
            self.visit(statement)
        self._is_bounded = outer

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if is_call_of(item.context_expr, "subprocess", {"Popen"}):
                self._report(node, "`with subprocess.Popen` waits for the process")
        self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> None:
        self._awaited.add(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_call_of(node, "asyncio", {"wait_for"}):
            outer, self._is_bounded = self._is_bounded, True
            self.generic_visit(node)
            self._is_bounded = outer
            return
        self._check(node)
        self.generic_visit(node)

    def _check(self, call: ast.Call) -> None:
        if is_call_of(call, "subprocess", RUNNERS) and not has_keyword(call, "timeout"):
            self._report(call, "subprocess: pass `timeout`")
        elif is_call_of(call, "os", {"wait", "waitpid"}) and "WNOHANG" not in ast.unparse(call):
            self._report(call, "os.waitpid waits for the process")
        if not isinstance(call.func, ast.Attribute) or self._is_bounded:
            return
        name, owner = call.func.attr, call.func.value
        last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if name in BLOCKING and not call.args and not has_keyword(call, "timeout"):
            # Coroutines may wait for events, locks and queues: they do not block the event loop.
            is_event = last in self._events or ast.unparse(owner) == "asyncio.Event()"
            is_lock = name in ("acquire", "join") and call in self._awaited
            if not is_lock and not (name == "wait" and is_event):
                self._report(call, f"{ast.unparse(call)}: pass a timeout")
        elif name in STREAM_READS and last == "stdout":
            self._report(call, f"{ast.unparse(call)}: use asyncio.timeout")
        elif name == "recv" and last == "_pipe":
            self._report(call, f"{ast.unparse(call)}: poll with a timeout first")

    def _report(self, node: ast.AST, what: str) -> None:
        self.found.append((getattr(node, "lineno", 0), what))


def iter_modules() -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules of all tests that may wait or create events."""
    for path in sorted(TESTS.rglob("*.py")):
        if WORDS.search(text := path.read_text("utf-8")):
            yield path, ast.parse(text)


def is_event_type(annotation: ast.expr) -> bool:
    """Return whether an annotation is `asyncio.Event`, or begins with it."""
    while isinstance(annotation, ast.BinOp):
        annotation = annotation.left
    return isinstance(annotation, ast.Attribute) and ast.unparse(annotation) == "asyncio.Event"


def find_events(tree: ast.Module) -> set[str]:
    """Return the names of the variables and attributes that are asyncio events."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if is_event_type(node.annotation):
                names.add(name)
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
            elif is_call_of(value, "asyncio", {"Event"}):
                names.add(target.attr if isinstance(target, ast.Attribute) else ast.unparse(target))
    return names


def test_waits_for_processes_threads_and_pipes_have_a_deadline() -> None:
    """Coroutines may wait for asyncio events: pytest's timeout ends the event loop."""
    modules = [(path.relative_to(TESTS), tree) for path, tree in iter_modules()]
    shared = {
        name for path, tree in modules if "support" in str(path) for name in find_events(tree)
    }
    found = []
    for path, tree in modules:
        waits = UnboundedWaits(shared | find_events(tree))
        waits.visit(tree)
        found += [f"{path}:{line}: {what}" for line, what in waits.found]

    assert found == []
