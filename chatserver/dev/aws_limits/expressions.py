"""Evaluation of the key condition and filter of a Query.

Supported: comparisons, BETWEEN, IN, AND, OR, NOT, parentheses, `begins_with`, `contains`,
`attribute_exists` and `attribute_not_exists`, on top-level attributes.
"""

from __future__ import annotations

import decimal
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from chatserver.dev.aws_limits.item_sizes import Item

Value = Mapping[str, Any]
Test = Callable[[Item], bool]
_Operand = Callable[[Item], Value | None]

_TOKEN: Final = re.compile(r"\s*(<=|>=|<>|[=<>(),]|[#:]?[A-Za-z0-9_.\-]+)")
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


def parse(expression: str, request: Mapping[str, Any]) -> Test:
    """Return a function that tests whether an item matches an expression.

    `request` has the attribute names and values of the expression.

    Raises:
        Unsupported: the expression is malformed or has an unknown function.
    """
    return _Parser(expression, request).parse()


def find_partition(request: Mapping[str, Any], partition: str) -> Value | None:
    """Return the value that a Query requires for its partition key attribute; None if not found."""
    names: Mapping[str, str] = request.get("ExpressionAttributeNames") or {}
    values: Mapping[str, Value] = request.get("ExpressionAttributeValues") or {}
    condition = request.get("KeyConditionExpression", "")
    for name, value in re.findall(r"([#\w.\-]+)\s*=\s*(:\w+)", condition):
        if names.get(name, name) == partition:
            return values.get(value)
    return None


def to_sortable(value: Value) -> tuple[str, Any]:
    """Return a value in a form that sorts like DynamoDB keys."""
    ((kind, content),) = value.items()
    if kind == "N":
        return kind, decimal.Decimal(content)
    return kind, content.encode() if isinstance(content, str) else content


class _Parser:
    def __init__(self, expression: str, request: Mapping[str, Any]) -> None:
        self._names: Mapping[str, str] = request.get("ExpressionAttributeNames") or {}
        self._values: Mapping[str, Value] = request.get("ExpressionAttributeValues") or {}
        self._tokens = _split(expression)
        self._at = 0

    def parse(self) -> Test:
        test = self._parse_or()
        if self._at < len(self._tokens):
            raise Unsupported(self._tokens[self._at])
        return test

    def _parse_or(self) -> Test:
        tests = [self._parse_and()]
        while self._accept("OR"):
            tests.append(self._parse_and())
        return lambda item: any(test(item) for test in tests)

    def _parse_and(self) -> Test:
        tests = [self._parse_not()]
        while self._accept("AND"):
            tests.append(self._parse_not())
        return lambda item: all(test(item) for test in tests)

    def _parse_not(self) -> Test:
        if self._accept("NOT"):
            inner = self._parse_not()
            return lambda item: not inner(item)
        if self._accept("("):
            inner = self._parse_or()
            self._expect(")")
            return inner
        return self._parse_comparison()

    def _parse_comparison(self) -> Test:
        token = self._next()
        if self._peek() == "(":
            return self._parse_function(token)
        left = self._parse_operand(token)
        word = self._next()
        if word in _COMPARISONS:
            right, compare = self._parse_operand(self._next()), _COMPARISONS[word]
            return lambda item: _compare(compare, left(item), right(item))
        match word.upper():
            case "BETWEEN":
                low = self._parse_operand(self._next())
                self._expect("AND")
                high = self._parse_operand(self._next())
                return lambda item: (
                    _compare(operator.ge, left(item), low(item))
                    and _compare(operator.le, left(item), high(item))
                )
            case "IN":
                self._expect("(")
                choices = [self._parse_operand(self._next())]
                while self._accept(","):
                    choices.append(self._parse_operand(self._next()))
                self._expect(")")
                return lambda item: any(
                    _compare(operator.eq, left(item), choice(item)) for choice in choices
                )
        raise Unsupported(word)

    def _parse_function(self, name: str) -> Test:
        self._expect("(")
        first = self._parse_operand(self._next())
        second = self._parse_operand(self._next()) if self._accept(",") else None
        self._expect(")")
        match name:
            case "attribute_exists":
                return lambda item: first(item) is not None
            case "attribute_not_exists":
                return lambda item: first(item) is None
        if second is None or name not in _FUNCTIONS:
            raise Unsupported(name)
        part, function = second, _FUNCTIONS[name]
        return lambda item: function(first(item), part(item))

    def _parse_operand(self, token: str) -> _Operand:
        if token.startswith(":"):
            if token not in self._values:
                raise Unsupported(token)
            value = self._values[token]
            return lambda _: value
        name = self._names.get(token, token)
        return lambda item: item.get(name)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise Unsupported("the expression ends early")
        self._at += 1
        return token

    def _accept(self, word: str) -> bool:
        if self._peek().upper() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise Unsupported(self._peek())


def _split(expression: str) -> list[str]:
    tokens, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unsupported(text[position:])
        tokens.append(match[1])
        position = match.end()
    return tokens


def _compare(compare: Callable[[Any, Any], bool], left: Value | None, right: Value | None) -> bool:
    """Compare two values; an attribute that is missing or has another type never matches."""
    if left is None or right is None:
        return False
    (kind, left_key), (other_kind, right_key) = to_sortable(left), to_sortable(right)
    return kind == other_kind and compare(left_key, right_key)


def _begins_with(text: Value | None, part: Value | None) -> bool:
    return _compare(lambda key, start: bool(key.startswith(start)), text, part)


def _contains(whole: Value | None, part: Value | None) -> bool:
    if whole is None or part is None:
        return False
    ((kind, content),), ((_, element),) = whole.items(), part.items()
    return part in content if kind == "L" else element in content


_FUNCTIONS: Final[dict[str, Callable[[Value | None, Value | None], bool]]] = {
    "begins_with": _begins_with,
    "contains": _contains,
}
