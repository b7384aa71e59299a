"""Components are complete once constructed: only its own class assigns an object's attributes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Classes whose attributes other modules assign, and why. Records need no entry: see `is_record`.
EXCEPTIONS = {
    "Channel": "the positions of a large chat; `LargeChatDelivery` is its logic",
    "ChatQueues": "`is_held` is set by the persist worker that reads the backlog",
    "HotPathCounters": "counters; the hot path increments them without a call",
    "ClusterNode": "the connection state of a cluster node, which `ClusterClient` maintains",
    "Session": "`caller` changes when the session's token is renewed",
    "SessionActivity": "whether the app is visible, which the frame `state` changes",
    "SessionState": "the counts of pending frames, which `CommandHandler` maintains",
    "WorkBudget": "the cost of one search, summed up by its steps",
    # State of the SDK and the load tool, shared by the parts of one client.
    "Chat": "a chat of the SDK, changed by the events of the client",
    "ChatRecord": "a chat of the load tool, changed by its users",
    "Conversation": "the open conversation of the terminal client",
    "EventQueue": "the event that the application handles now",
}

RECORD = "a record"  # stands for all classes that only have values

# Attributes of libraries that have the name of one of ours.
EXTERNAL = {"_body"}  # of a Litestar request


@functools.cache
def parse_sources() -> dict[Path, ast.Module]:
    """Return the syntax tree of each source file."""
    paths = (path for name in ("chatserver", "workers") for path in (ROOT / name).rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in paths}


def list_assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Attribute):
                yield each


def is_own(attribute: ast.Attribute) -> bool:
    """Return whether an object assigns its own attribute."""
    return isinstance(attribute.value, ast.Name) and attribute.value.id in {"self", "cls"}


def list_declared(class_: ast.ClassDef) -> set[str]:
    """Return the names of the attributes that a class declares or assigns."""
    declared = {
        statement.target.id
        for statement in class_.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    assigned = (each for node in ast.walk(class_) for each in list_assigned(node))
    return declared | {each.attr for each in assigned if is_own(each)}


def list_own_values(class_: ast.ClassDef) -> set[str]:
    """Return the names of the attributes to which a class assigns a value."""
    return {
        each.attr
        for node in ast.walk(class_)
        if not isinstance(node, ast.AnnAssign) or node.value is not None
        for each in list_assigned(node)
        if is_own(each)
    }


def is_record(class_: ast.ClassDef) -> bool:
    """Return whether a class only has values: a mutable data class, or one without methods."""
    decorators = " ".join(map(ast.unparse, class_.decorator_list))
    if "dataclass" in decorators or "define" in decorators:
        return "frozen=True" not in decorators
    bases = " ".join(map(ast.unparse, (*class_.bases, *class_.keywords)))
    if "Struct" in bases:
        return "frozen=True" not in bases
    methods = [
        each
        for each in class_.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not each.name.startswith("__")
        and "property" not in " ".join(map(ast.unparse, each.decorator_list))
    ]
    return not methods


@functools.cache
def find_owners() -> dict[str, set[str]]:
    """Return the classes that declare each attribute, by the name of the attribute."""
    owners: dict[str, set[str]] = {}
    for tree in parse_sources().values():
        for class_ in ast.walk(tree):
            if isinstance(class_, ast.ClassDef):
                name = RECORD if is_record(class_) else class_.name
                for attribute in list_declared(class_):
                    owners.setdefault(attribute, set()).add(name)
    return owners


@functools.cache
def find_foreign_assignments() -> dict[str, set[str]]:
    """Return the classes whose attribute a module may assign without declaring it, by statement.

    Types are not known here, so an attribute's name decides which classes it may belong to.
    """
    owners, found = find_owners(), dict[str, set[str]]()
    for path, tree in parse_sources().items():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        here = {attribute for class_ in classes for attribute in list_declared(class_)}
        for node in ast.walk(tree):
            for attribute in list_assigned(node):
                known = owners.get(attribute.attr, set())
                if not is_own(attribute) and attribute.attr not in here | EXTERNAL and known:
                    name = f"{path.relative_to(ROOT)}:{attribute.lineno}: {ast.unparse(attribute)}"
                    found[name] = known
    return {name: known for name, known in found.items() if RECORD not in known}


def test_no_module_assigns_attributes_of_components_of_another_module() -> None:
    """A component gets all that it uses from its constructor; nobody completes it afterwards."""
    foreign = find_foreign_assignments()

    assert [name for name, known in foreign.items() if not known & EXCEPTIONS.keys()] == []


def test_every_exception_is_needed() -> None:
    """An exception is deleted when no other module assigns the attributes of its class."""
    assigned = set().union(*find_foreign_assignments().values())

    assert EXCEPTIONS.keys() - assigned == set()


def test_attribute_that_a_class_declares_is_assigned_by_it() -> None:
    """An attribute with a bare annotation is not left for others to assign."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in parse_sources().items()
        for class_ in ast.walk(tree)
        if isinstance(class_, ast.ClassDef)
        for node in ast.walk(class_)
        if isinstance(node, ast.AnnAssign) and node.value is None
        for declared in list_assigned(node)
        if is_own(declared) and declared.attr not in list_own_values(class_)
    ]

    assert found == []
