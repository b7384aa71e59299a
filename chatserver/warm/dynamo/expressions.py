"""Expression scanner: finds the values that key attributes are compared with or set to.

This is not a parser for DynamoDB's expression language. It supports the forms that this program
uses and rejects any other form that contains a key attribute. So a new form fails in the first test
that uses it, and must be added here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from chatserver.warm.dynamo.conditions import EQUAL, PART

KEY_CONDITION: Final = "KeyConditionExpression"
EXPRESSIONS: Final = (
    KEY_CONDITION,
    "FilterExpression",
    "ConditionExpression",
    "UpdateExpression",
)

_TOKEN = re.compile(r"[#:]?\w+|<>|<=|>=|\S")
_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_EXISTENCE = frozenset({"attribute_exists", "attribute_not_exists"})
_CLAUSES = frozenset({"SET", "REMOVE", "ADD", "DELETE"})
_NO_MORE = ("",) * 5
_RENDERED = re.compile(r":(\d+)([eop])\d+")  # a placeholder made by `conditions`


class Comparison(NamedTuple):
    """One use of an attribute in an expression: the operator and the value (``:name``).

    For expressions rendered by `conditions`, the operator is ``=`` or ``<``, which stands for all
    order comparisons.
    """

    attribute: str
    operator: str
    value: str


class UnknownForm(AssertionError):
    """An expression uses a key attribute in an unsupported form."""


def find_comparisons(
    request: Mapping[str, Any], attributes: frozenset[str]
) -> tuple[Comparison, ...]:
    """Return all uses of `attributes` in the expressions of a request or transaction action.

    Raises:
        UnknownForm: a form is not supported, or the value (``:name``) of one of `attributes` is
            also used elsewhere.
    """
    rendered = _find_rendered(request, attributes)
    if rendered is not None:
        return rendered
    texts = tuple(request.get(name, "") for name in EXPRESSIONS)
    if texts == ("", "", "", ""):
        return ()
    names = tuple(sorted(request.get("ExpressionAttributeNames", {}).items()))
    return _find(texts, names, attributes)


def _find_rendered(
    request: Mapping[str, Any], attributes: frozenset[str]
) -> tuple[Comparison, ...] | None:
    """Return the comparisons in a request made by `conditions`, or None if it has another form."""
    values = request.get("ExpressionAttributeValues")
    if not values:
        return None
    comparisons: list[Comparison] = []
    for placeholder in values:
        parts = _parse_placeholder(placeholder)
        if parts is None:
            return None
        name, use = parts
        attribute = request["ExpressionAttributeNames"][name]
        if attribute in attributes:
            if use == PART:
                raise UnknownForm(f"{attribute}: a part of a key or an encrypted value is used")
            operator = "=" if use == EQUAL else "<"
            comparisons.append(Comparison(attribute, operator, placeholder))
    return tuple(comparisons)


@functools.lru_cache(maxsize=1024)
def _parse_placeholder(placeholder: str) -> tuple[str, str] | None:
    """Return the attribute's placeholder and the use of a value, or None if it has another form."""
    match = _RENDERED.fullmatch(placeholder)
    return None if match is None else (f"#{match[1]}", match[2])


@functools.lru_cache(maxsize=1024)
def _find(
    texts: tuple[str, ...], names: tuple[tuple[str, str], ...], attributes: frozenset[str]
) -> tuple[Comparison, ...]:
    of_name = dict(names)
    comparisons: list[Comparison] = []
    uses: dict[str, int] = {}
    for text in texts:
        tokens = _TOKEN.findall(text)
        for token in tokens:
            if token.startswith(":"):
                uses[token] = uses.get(token, 0) + 1
        comparisons += _find_in(tokens, of_name, attributes)
    for value in {comparison.value for comparison in comparisons}:
        if uses[value] != sum(comparison.value == value for comparison in comparisons):
            raise UnknownForm(f"{value} is used both for a key and elsewhere: {texts}")
    return tuple(comparisons)


def _find_in(
    tokens: list[str], of_name: Mapping[str, str], attributes: frozenset[str]
) -> list[Comparison]:
    comparisons: list[Comparison] = []
    clause = ""
    padded = (*_NO_MORE, *tokens, *_NO_MORE)
    for position in range(len(_NO_MORE), len(tokens) + len(_NO_MORE)):
        token = padded[position]
        clause = token if token in _CLAUSES else clause
        name = of_name.get(token, token)
        if name not in attributes:
            continue
        before, after = padded[position - 2 : position], padded[position + 1 : position + 5]
        values = _find_values(before, after, padded[position + 1 :], clause)
        if values is None or not all(value.startswith(":") for value in values):
            raise UnknownForm(f"{name} in `{' '.join(tokens)}`")
        operator = before[0] if after[0] == "," else after[0]
        comparisons += [Comparison(name, operator, value) for value in values]
    return comparisons


def _find_values(
    before: tuple[str, ...], after: tuple[str, ...], rest: tuple[str, ...], clause: str
) -> list[str] | None:
    if before == ("begins_with", "(") and after[0] == "," and after[2] == ")":
        return [after[1]]
    if before[1] == "(" and before[0] in _EXISTENCE and after[0] == ")":
        return []
    if before[1] == ".":
        return None  # an element of a map attribute
    if clause == "REMOVE":
        return []
    if after[0] in _COMPARATORS and (clause in ("", "SET")):
        return [after[1]]
    if after[0] == "BETWEEN" and after[2] == "AND":
        return [after[1], after[3]]
    if after[0] == "IN" and after[1] == "(" and ")" in rest:
        return [word for word in rest[2 : rest.index(")")] if word != ","]
    return None
