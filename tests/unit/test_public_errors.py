"""Texts of errors that clients receive: no text or address of a server behind this one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatserver.errors import ChatError, ConfigError, CorruptData, Overloaded, Unavailable

REPO = Path(__file__).parents[2]
# Code that runs for an operator or on a client's machine; its errors reach no other client.
OWN_PROCESSES = {"cli", "client", "dev", "loadtest", "operations"}
# Functions that create an error which is temporary, with its text as the first argument.
TEMPORARY = {"Unavailable", "Overloaded", "NotReached"}
# Names whose values are addresses, paths, or text from a library or another server.
PRIVATE = {
    "endpoint",
    "error",
    "exc",
    "host",
    "key",
    "message",
    "name",
    "path",
    "problems",
    "reason",
    "refusal",
    "reply",
    "server",
    "text",
    "url",
    "why",
}
# An operator writes these texts for clients (`chatserver tenants block`).
WRITTEN_FOR_CLIENTS = {"self.blocked", "self.fence.reason"}
# These errors end a command or a process.
OPERATORS_ONLY = ("chatserver/gateway/process/supervisor.py", "chatserver/warm/schema/migrations/")


def list_sources() -> list[Path]:
    package = REPO / "chatserver"
    sources = [*package.rglob("*.py"), *(REPO / "workers").rglob("*.py")]
    return [
        path
        for path in sorted(sources)
        if not path.is_relative_to(package)
        or (
            path.relative_to(package).parts[0] not in OWN_PROCESSES
            and not path.relative_to(REPO).as_posix().startswith(OPERATORS_ONLY)
        )
    ]


def is_public(text: ast.expr) -> bool:
    """Return whether an expression is a text that clients may see."""
    match text:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.JoinedStr(values=parts):
            return not any(get_name(node) in PRIVATE for part in parts for node in iter_names(part))
        case _:
            return ast.unparse(text) in WRITTEN_FOR_CLIENTS


def iter_names(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Yield names and attributes, but not the object of an attribute: `message.seq` is `seq`."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from iter_names(child)


def get_name(node: ast.Name | ast.Attribute) -> str:
    return (node.id if isinstance(node, ast.Name) else node.attr).strip("_").rpartition("_")[2]


def iter_private_errors(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that create an error with a private text and no text for clients."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in TEMPORARY
            and not any(keyword.arg == "public" for keyword in node.keywords)
            and not is_public(node.args[0])
        ):
            yield node


@pytest.mark.parametrize(
    ("source", "is_private"),
    [
        ("Unavailable('redis: cannot load scripts')", False),
        ("Unavailable(f'chat {chat}: try again')", False),
        ("Unavailable(str(exc))", True),
        ("Unavailable(exc.message)", True),
        ("Unavailable(text)", True),
        ("Unavailable(f'redis at {self.name}: {exc}')", True),
        ("Unavailable(f'{self._text_url}: malformed')", True),
        ("Unavailable(text, public=REDIS_DOWN)", False),
    ],
)
def test_rule_finds_private_texts(source: str, is_private: bool) -> None:
    """The rule below would otherwise pass without finding anything."""
    assert bool(list(iter_private_errors(ast.parse(source)))) == is_private


def test_no_temporary_error_sends_private_text_to_clients() -> None:
    """A text from a library or another server needs `public`, the text for clients."""
    found = [
        f"{path.relative_to(REPO)}:{call.lineno}: {ast.unparse(call)[:120]}"
        for path in list_sources()
        for call in iter_private_errors(ast.parse(path.read_text()))
    ]

    assert not found, "\n".join(found)


def iter_sent_texts(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each use of an error's `message` other than as an argument of a log call."""
    logged = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("log.", "level"))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "message"
            and isinstance(node.value, ast.Name)
            and node.value.id in {"error", "exc"}
            and id(node) not in logged
        ):
            yield node


def test_edges_send_public_messages_only() -> None:
    """Frames, close reasons, responses and results of calls have `public_message`."""
    edges = [
        *(REPO / "chatserver/api").rglob("*.py"),
        *(REPO / "chatserver/gateway").rglob("*.py"),
        REPO / "chatserver/hot/bus/rpc_queue.py",
        REPO / "chatserver/protocol/codec.py",
        REPO / "workers/readiness.py",
    ]
    found = [
        f"{path.relative_to(REPO)}:{node.lineno}"
        for path in edges
        for node in iter_sent_texts(ast.parse(path.read_text()))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unavailable("redis at h:1: x", public="try again"), "try again"),
        (Overloaded("full; try again"), "full; try again"),
    ],
)
def test_public_message_is_the_text_for_clients(error: ChatError, message: str) -> None:
    """An error without a text of its own for clients has one text for all."""
    assert error.public_message == message
    assert str(error) == error.message


@pytest.mark.parametrize("error", [CorruptData("box:alice is a list"), ConfigError("h:1: no")])
def test_public_message_of_an_internal_error_has_no_details(error: ChatError) -> None:
    """Clients cannot do anything about these."""
    assert error.message not in error.public_message
