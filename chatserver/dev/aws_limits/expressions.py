"""Conditions of DynamoDB requests, evaluated outside of DynamoDB.

An expression is compiled once: the same texts come with other names and values. Supported:
comparisons, BETWEEN, IN, AND, OR, NOT, parentheses, `begins_with`, `contains`, `attribute_exists`
and `attribute_not_exists`, on attributes and paths into maps.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from chatserver.dev.aws_limits.item_sizes import Item

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


class Unsupported(Exception):
    """The expression is malformed or not supported by this module."""


def parse(expression: str, request: Mapping[str, Any]) -> Callable[[Item], bool]:
    """Return a function that tests whether an item matches an expression of a request.

    Raises:
        Unsupported: the expression is malformed, or has an unknown function or placeholder.
    """
    names: Names = request.get("ExpressionAttributeNames") or {}
    values: Values = request.get("ExpressionAttributeValues") or {}
    test = compile_condition(expression)
    for placeholder in re.findall(r":\w+", expression):
        if placeholder not in values:
            raise Unsupported(placeholder)
    return lambda item: test(item, names, values)


def find_partition(request: Mapping[str, Any], partition: str) -> Value | None:
    """Return the value that a Query requires for its partition key attribute; None if not found."""
    names: Mapping[str, str] = request.get("ExpressionAttributeNames") or {}
    values: Mapping[str, Value] = request.get("ExpressionAttributeValues") or {}
    condition = request.get("KeyConditionExpression", "")
    for name, value in re.findall(r"([#\w.\-]+)\s*=\s*(:\w+)", condition):
        if names.get(name, name) == partition:
            return values.get(value)
    return None


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
    value: Value | None = item.get(names.get(path[0], path[0]))
    for name in path[1:]:
        if value is None or "M" not in value:
            return None
        value = value["M"].get(names.get(name, name))
    return value


@functools.lru_cache(maxsize=4096)
def compile_condition(text: str) -> Test:
    """Return a function that tests an item.

    Raises:
        Unsupported: the text is malformed or not supported.
    """
    return ExpressionParser(text).parse_condition()


class ExpressionParser:
    """A parser of conditions; other expressions use its tokens and paths."""

    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self._at = 0

    def parse_condition(self) -> Test:
        """Parse the whole text."""
        test = self._parse_or()
        if self._at < len(self._tokens):
            raise Unsupported(self._tokens[self._at])
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
        if self._at + 1 < len(self._tokens) and self._tokens[self._at + 1] == "(":
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
        raise Unsupported(word)

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
        raise Unsupported(name)

    def parse_path(self) -> Path:
        """Parse an attribute or a path into maps."""
        path = [self.next()]
        while self.accept("."):
            path.append(self.next())
        return tuple(path)

    def peek(self) -> str:
        """Return the next token without taking it; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        """Take the next token."""
        token = self.peek()
        if not token:
            raise Unsupported("the expression ends early")
        self._at += 1
        return token

    def accept(self, word: str) -> bool:
        """Take the next token if it is `word`, in upper case."""
        if self.peek().upper() != word:
            return False
        self._at += 1
        return True

    def expect(self, word: str) -> None:
        """Take the next token, which must be `word`."""
        if not self.accept(word):
            raise Unsupported(self.peek())


def _split(text: str) -> list[str]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unsupported(text[position:])
        tokens.append(match[1])
        position = match.end()
    return tokens


def _make_comparison(
    compare: Callable[[Any, Any], bool], path: Path, placeholder: str, *, is_unequal: bool = False
) -> Test:
    if not placeholder.startswith(":"):
        raise Unsupported(placeholder)

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
