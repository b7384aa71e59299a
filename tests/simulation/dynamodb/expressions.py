"""Updates and projections of DynamoDB requests; conditions are those of the limits of AWS.

Supported is what `chatserver.warm.dynamo.conditions` renders, and more of it fails loudly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from chatserver.dev.aws_limits.expressions import (
    ExpressionParser,
    Names,
    Path,
    Unsupported,
    Value,
    Values,
    find_value,
)
from chatserver.dev.aws_limits.item_sizes import Item

Step = Callable[[Item, Item, Names, Values], None]


@functools.lru_cache(maxsize=4096)
def compile_update(text: str) -> tuple[Step, ...]:
    """Return the steps of an update: functions of the item before, the new item and the values."""
    parser, steps, clause = ExpressionParser(text), list[Step](), ""
    while parser.peek():
        if parser.peek().upper() in ("SET", "REMOVE", "ADD", "DELETE"):
            clause = parser.next().upper()
        path = parser.parse_path()
        match clause:
            case "SET":
                parser.expect("=")
                steps.append(_parse_set(parser, path))
            case "REMOVE":
                steps.append(_make_remove(path))
            case "ADD" | "DELETE":
                steps.append(_make_add(path, parser.next(), is_removal=clause == "DELETE"))
            case _:
                raise Unsupported(text)
        parser.accept(",")
    return tuple(steps)


def _parse_set(parser: ExpressionParser, path: Path) -> Step:
    if parser.peek() == "if_not_exists":
        parser.next()
        parser.expect("(")
        other = parser.parse_path()
        parser.expect(",")
        default = parser.next()
        parser.expect(")")

        def set_default(before: Item, item: Item, names: Names, values: Values) -> None:
            known = find_value(before, other, names)
            _put(item, path, names, values[default] if known is None else known)

        return set_default
    placeholder = parser.next()
    if not placeholder.startswith(":"):
        raise Unsupported(placeholder)
    return lambda _, item, names, values: _put(item, path, names, values[placeholder])


def _make_remove(path: Path) -> Step:
    def remove(_: Item, item: Item, names: Names, __: Values) -> None:
        owner = _find_owner(item, path, names)
        if owner is not None:
            owner.pop(names.get(path[-1], path[-1]), None)

    return remove


def _make_add(path: Path, placeholder: str, *, is_removal: bool) -> Step:
    def add(before: Item, item: Item, names: Names, values: Values) -> None:
        ((kind, content),) = values[placeholder].items()
        known = find_value(before, path, names)
        if kind == "N":
            number = Decimal(known["N"]) if known else Decimal(0)
            _put(item, path, names, {"N": format(number + Decimal(content), "f")})
            return
        elements = set(known[kind]) if known else set()
        elements = elements - set(content) if is_removal else elements | set(content)
        if elements:
            _put(item, path, names, {kind: sorted(elements)})
        elif known:
            owner = _find_owner(item, path, names)
            if owner is not None:
                owner.pop(names.get(path[-1], path[-1]), None)

    return add


def _find_owner(item: Item, path: Path, names: Names) -> dict[str, Any] | None:
    owner: dict[str, Any] = item
    for name in path[:-1]:
        value = owner.get(names.get(name, name))
        if value is None or "M" not in value:
            return None
        owner = value["M"]
    return owner


def _put(item: Item, path: Path, names: Names, value: Value) -> None:
    owner = _find_owner(item, path, names)
    if owner is None:
        raise Unsupported("The document path provided in the update expression is invalid")
    owner[names.get(path[-1], path[-1])] = value


# Projections


@functools.lru_cache(maxsize=1024)
def parse_projection(text: str) -> tuple[Path, ...]:
    """Return the paths of a projection."""
    parser = ExpressionParser(text)
    paths = [parser.parse_path()]
    while parser.accept(","):
        paths.append(parser.parse_path())
    return tuple(paths)


def project(item: Item, paths: tuple[Path, ...], names: Names) -> Item:
    """Return the attributes at the paths."""
    found: dict[str, Any] = {}
    for path in paths:
        value = find_value(item, path, names)
        if value is None:
            continue
        owner = found
        for name in path[:-1]:
            owner = owner.setdefault(names.get(name, name), {"M": {}})["M"]
        owner[names.get(path[-1], path[-1])] = value
    return found
