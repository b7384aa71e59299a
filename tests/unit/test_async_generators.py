"""Async generators that hold a connection, file or task are closed by their consumers.

An async generator that is abandoned in the middle is closed by the garbage collector, which may run
minutes later. `contextlib.aclosing` closes it at once.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for name in ("chatserver", "workers") for path in (ROOT / name).rglob("*.py")]
# `_begin` closes the stream of a provider itself, unless it passes the stream to an exit stack.
# The records of a tenant in Redis have the name of a gateway's records, but hold nothing.
CLOSED_OTHERWISE = {
    ("chatserver/features/companions/providers/model_call.py", "stream"),
    ("chatserver/operations/tenants/export.py", "iter_records"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def walk_own(function: Function) -> Iterator[ast.AST]:
    """Generate the nodes of a function, without those of nested functions."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


@functools.cache
def holds_something(function: Function) -> bool:
    """Return whether an async generator yields within a `with` block or before a `finally`."""
    if not isinstance(function, ast.AsyncFunctionDef):
        return False
    if any("contextmanager" in ast.unparse(each) for each in function.decorator_list):
        return False
    return any(
        isinstance(child, ast.Yield)
        for node in walk_own(function)
        if isinstance(node, ast.With | ast.AsyncWith)
        or (isinstance(node, ast.Try) and node.finalbody)
        for child in ast.walk(node)
    )


def name_of(call: ast.Call) -> str:
    """Return the last part of the name of a called function."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def returned_call(function: Function) -> str:
    """Return the name of the function whose result a one-line function returns."""
    match function.body[-1]:
        case ast.Return(ast.Call(ast.Attribute(attr=name) | ast.Name(id=name))):
            return name
    return ""


def find_unclosed(trees: dict[str, ast.Module]) -> list[str]:
    """Return the calls of such generators that are not closed."""
    nodes_of = {path: list(ast.walk(tree)) for path, tree in trees.items()}
    functions = [
        (path, node)
        for path, nodes in nodes_of.items()
        for node in nodes
        if isinstance(node, Function)
    ]
    public = {function.name for _, function in functions if holds_something(function)}
    public |= {function.name for _, function in functions if returned_call(function) in public}
    holding = {(path, function.name) for path, function in functions if holds_something(function)}
    unclosed = []
    for path, nodes in nodes_of.items():
        closed: set[int] = set()
        for node in nodes:
            match node:
                case ast.Call(ast.Attribute(attr="aclosing"), [argument]):
                    closed |= {id(each) for each in ast.walk(argument)}
                case ast.AsyncWith(items, body) if "aclosing" in ast.unparse(items[0]):
                    closed |= {id(each) for statement in body for each in ast.walk(statement)}
                case ast.Return(value) if value is not None:
                    closed.add(id(value))
        names = {
            argument.id
            for node in nodes
            if isinstance(node, ast.Call) and name_of(node) == "aclosing"
            for argument in node.args
            if isinstance(argument, ast.Name)
        }
        for node in nodes:
            match node:
                case ast.Assign([ast.Name(id=name)], value) if name in names:
                    closed.add(id(value))
        unclosed += [
            f"{path}:{node.lineno} {name}"
            for node in nodes
            if isinstance(node, ast.Call) and id(node) not in closed
            for name in [name_of(node)]
            if (path, name) in holding or (name in public and not name.startswith("_"))
            if (path, name) not in CLOSED_OTHERWISE
        ]
    return unclosed


def test_every_generator_that_holds_something_is_closed_by_its_consumer() -> None:
    """A loop over such a generator is in `async with contextlib.aclosing(…)`."""
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in SOURCES}
    trees = {path: ast.parse(text) for path, text in sources.items() if "async " in text}

    assert find_unclosed(trees) == []


@pytest.mark.parametrize(
    ("consumer", "is_found"),
    [
        ("async def read():\n    async for row in rows():\n        pass", True),
        (
            "async def read():\n    async with contextlib.aclosing(rows()) as found:\n"
            "        async for row in found:\n            pass",
            False,
        ),
    ],
)
def test_unclosed_generator_is_found(consumer: str, is_found: bool) -> None:
    """The check above recognizes a loop without `aclosing`."""
    generator = "async def rows():\n    with open('file') as file:\n        yield file"
    tree = ast.parse(f"{generator}\n{consumer}")

    assert bool(find_unclosed({"module.py": tree})) is is_found
