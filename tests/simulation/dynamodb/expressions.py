"""Conditions, updates and projections of DynamoDB requests.

An expression is compiled once: the product sends the same texts with other names and values.
Supported is what `chatserver.warm.dynamo.conditions` renders, and more of it fails loudly.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

Item = dict[str, Any]
Value = Mapping[str, Any]
Names = Mapping[str, str]
Values = Mapping[str, Value]
Test = Callable[[Item, Names, Values], bool]
Path = tuple[str, ...]

_TOKEN: Final = re.compile(r"\s*(<=|>=|<>|[=<>(),.]|[#:]?[A-Za-z0-9_\-]+)")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class InvalidExpression(Exception):
    """The expression is malformed, or not supported by this module."""


def to_sortable(value: Value) -> Any:
    """Return a value in a form that compares as DynamoDB does."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content) if content.lstrip("-").isdigit() else Decimal(content)
        case "S":
            return content.encode()
        case "SS" | "NS":
            return sorted(content)
        case _:
            return content


def find_value(item: Item, path: Path, names: Names) -> Value | None:
    """Return the value at a path, or None."""
    value: Any = item.get(names.get(path[0], path[0]))
    for name in path[1:]:
        if value is None or "M" not in value:
            return None
        value = value["M"].get(names.get(name, name))
    return value


@functools.lru_cache(maxsize=4096)
def compile_condition(text: str) -> Test:
    """Return a function that tests an item.

    Raises:
        InvalidExpression: the text is malformed or not supported.
    """
    return _Parser(text).parse_condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _split(text)
        self.at = 0

    def parse_condition(self) -> Test:
        test = self._parse_or()
        if self.at < len(self.tokens):
            raise InvalidExpression(self.tokens[self.at])
        return test

    def _parse_or(self) -> Test:
        tests = [self._parse_and()]
        while self.accept("OR"):
            tests.append(self._parse_and())
        if len(tests) == 1:
            return tests[0]
        return lambda item, names, values: any(test(item, names, values) for test in tests)

    def _parse_and(self) -> Test:
        tests = [self._parse_not()]
        while self.accept("AND"):
            tests.append(self._parse_not())
        if len(tests) == 1:
            return tests[0]
        return lambda item, names, values: all(test(item, names, values) for test in tests)

    def _parse_not(self) -> Test:
        if self.accept("NOT"):
            inner = self._parse_not()
            return lambda item, names, values: not inner(item, names, values)
        if self.accept("("):
            inner = self._parse_or()
            self.expect(")")
            return inner
        return self._parse_comparison()

    def _parse_comparison(self) -> Test:
        if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1] == "(":
            return self._parse_function()
        path = self.parse_path()
        word = self.next()
        if word in _COMPARISONS:
            return _make_comparison(_COMPARISONS[word], path, self.next(), is_unequal=word == "<>")
        match word.upper():
            case "BETWEEN":
                low = self.next()
                self.expect("AND")
                at_least = _make_comparison(operator.ge, path, low)
                at_most = _make_comparison(operator.le, path, self.next())
                return lambda item, names, values: (
                    at_least(item, names, values) and at_most(item, names, values)
                )
            case "IN":
                self.expect("(")
                tests = [_make_comparison(operator.eq, path, self.next())]
                while self.accept(","):
                    tests.append(_make_comparison(operator.eq, path, self.next()))
                self.expect(")")
                return lambda item, names, values: any(test(item, names, values) for test in tests)
        raise InvalidExpression(word)

    def _parse_function(self) -> Test:
        name = self.next()
        self.expect("(")
        path = self.parse_path()
        argument = self.next() if self.accept(",") else ""
        self.expect(")")
        match name:
            case "attribute_exists":
                return lambda item, names, _: find_value(item, path, names) is not None
            case "attribute_not_exists":
                return lambda item, names, _: find_value(item, path, names) is None
            case "begins_with":
                return _make_comparison(lambda text, part: text.startswith(part), path, argument)
            case "contains":
                return lambda item, names, values: _contains(
                    find_value(item, path, names), values[argument]
                )
        raise InvalidExpression(name)

    def parse_path(self) -> Path:
        path = [self.next()]
        while self.accept("."):
            path.append(self.next())
        return tuple(path)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise InvalidExpression("the expression ends early")
        self.at += 1
        return token

    def accept(self, word: str) -> bool:
        if self.peek().upper() != word:
            return False
        self.at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise InvalidExpression(self.peek())


def _split(text: str) -> list[str]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidExpression(text[position:])
        tokens.append(match[1])
        position = match.end()
    return tokens


def _make_comparison(
    compare: Callable[[Any, Any], bool], path: Path, placeholder: str, *, is_unequal: bool = False
) -> Test:
    if not placeholder.startswith(":"):
        raise InvalidExpression(placeholder)

    def test(item: Item, names: Names, values: Values) -> bool:
        left, right = find_value(item, path, names), values[placeholder]
        if left is None:
            return is_unequal
        if left.keys() != right.keys():
            return is_unequal
        return compare(to_sortable(left), to_sortable(right))

    return test


def _contains(whole: Value | None, part: Value) -> bool:
    if whole is None:
        return False
    ((kind, content),), ((_, wanted),) = whole.items(), part.items()
    return part in content if kind == "L" else wanted in content


# Updates

Step = Callable[[Item, Item, Names, Values], None]


@functools.lru_cache(maxsize=4096)
def compile_update(text: str) -> tuple[Step, ...]:
    """Return the steps of an update: functions of the item before, the new item and the values."""
    parser, steps, clause = _Parser(text), list[Step](), ""
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
                raise InvalidExpression(text)
        parser.accept(",")
    return tuple(steps)


def _parse_set(parser: _Parser, path: Path) -> Step:
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
        raise InvalidExpression(placeholder)
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
        raise InvalidExpression("The document path provided in the update expression is invalid")
    owner[names.get(path[-1], path[-1])] = value


# Projections


@functools.lru_cache(maxsize=1024)
def parse_projection(text: str) -> tuple[Path, ...]:
    """Return the paths of a projection."""
    parser = _Parser(text)
    paths = [parser.parse_path()]
    while parser.accept(","):
        paths.append(parser.parse_path())
    return tuple(paths)


def project(item: Item, paths: tuple[Path, ...], names: Names) -> Item:
    """Return the attributes at the paths."""
    found: Item = {}
    for path in paths:
        value = find_value(item, path, names)
        if value is None:
            continue
        owner = found
        for name in path[:-1]:
            owner = owner.setdefault(names.get(name, name), {"M": {}})["M"]
        owner[names.get(path[-1], path[-1])] = value
    return found
