"""Conditions and updates as objects, rendered to the expressions of a request.

`Attr` builds conditions. An update is a mapping of attributes to new values:

    Attr(F.REV) == 3
    Attr(F.PK).exists & (Attr(F.ENDED).is_absent | (Attr(F.ENDED) > now))
    {F.NAME: "Team", F.VERSION: Add(1), F.TOPIC: None}

All names and values are sent as placeholders. The placeholder of a value contains the number of its
attribute's placeholder and the use of the value: ``:2e0`` belongs to ``#2`` and has use ``e``. So
tenant isolation and encryption find the values of an attribute without parsing the expression
(`chatserver.warm.dynamo.expressions.find_comparisons`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple, TypeAlias

# How an expression uses a value.
EQUAL: Final = "e"  # it is the whole value of the attribute
ORDER: Final = "o"  # the attribute's value is greater, smaller, or starts with it
PART: Final = "p"  # it is an element, or a number to add
Use: TypeAlias = Literal["e", "o", "p"]


class Raw(NamedTuple):
    """A value in DynamoDB's format, such as one copied from an item: ``{"N": "3"}``."""

    stored: Mapping[str, Any]


Value: TypeAlias = (
    "str | int | bool | bytes | AbstractSet[str] | AbstractSet[int] | Raw"
    " | Sequence[Value] | Mapping[str, Value]"
)


Attributes: TypeAlias = Mapping[str, "Value | None"]  # attributes that are None are absent


class Add(NamedTuple):
    """Update: add a number (to 0 if the attribute is absent), or elements to a set."""

    value: int | AbstractSet[str] | AbstractSet[int]


class Discard(NamedTuple):
    """Update: remove elements from a set."""

    value: AbstractSet[str] | AbstractSet[int]


class Default(NamedTuple):
    """Update: set the attribute only if it is absent."""

    value: Value


Change: TypeAlias = "Value | Add | Discard | Default | None"  # None removes the attribute
Path: TypeAlias = tuple[str, ...]  # the names that lead to an element of a map attribute
Changes: TypeAlias = Mapping[str, Change] | Mapping[str | Path, Change]


class _Name(NamedTuple):
    attribute: str


class _Operand(NamedTuple):
    attribute: str
    use: Use
    value: Value


_Tokens: TypeAlias = tuple[str | _Name | _Operand, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition. Combine conditions with ``&``, ``|`` and ``~``.

    These operators bind more strongly than comparisons: write ``(Attr(a) == 1) & (Attr(b) < 2)``.
    """

    tokens: _Tokens
    joiner: Literal["", " AND ", " OR "] = ""

    def __and__(self, other: Condition) -> Condition:
        return _join(" AND ", self, other)

    def __or__(self, other: Condition) -> Condition:
        return _join(" OR ", self, other)

    def __invert__(self) -> Condition:
        return Condition(("NOT ", *self._group("")))

    def __bool__(self) -> bool:
        raise TypeError("a condition is evaluated by DynamoDB; combine conditions with &, | and ~")

    def _group(self, joiner: str) -> _Tokens:
        """Return the tokens, in parentheses if needed; DynamoDB rejects redundant parentheses."""
        return self.tokens if self.joiner in ("", joiner) else ("(", *self.tokens, ")")


def _join(joiner: Literal[" AND ", " OR "], left: Condition, right: Condition) -> Condition:
    return Condition((*left._group(joiner), joiner, *right._group(joiner)), joiner)


class Attr:
    """An attribute, or an element of a map attribute, in a condition."""

    __slots__ = ("_path", "_tokens")
    __hash__ = None  # type: ignore[assignment]  # an equal attribute is not a condition

    def __init__(self, *path: str) -> None:
        self._path = path
        self._tokens = _render_path(path)

    @property
    def exists(self) -> Condition:
        return Condition(("attribute_exists(", *self._tokens, ")"))

    @property
    def is_absent(self) -> Condition:
        return Condition(("attribute_not_exists(", *self._tokens, ")"))

    def __eq__(self, value: Value) -> Condition:  # type: ignore[override]  # returns no bool
        return self._compare(" = ", EQUAL, value)

    def __ne__(self, value: Value) -> Condition:  # type: ignore[override]  # returns no bool
        return self._compare(" <> ", EQUAL, value)

    def __lt__(self, value: Value) -> Condition:
        return self._compare(" < ", ORDER, value)

    def __le__(self, value: Value) -> Condition:
        return self._compare(" <= ", ORDER, value)

    def __gt__(self, value: Value) -> Condition:
        return self._compare(" > ", ORDER, value)

    def __ge__(self, value: Value) -> Condition:
        return self._compare(" >= ", ORDER, value)

    def between(self, low: Value, high: Value) -> Condition:
        """Both bounds are inclusive."""
        bounds = self._operand(ORDER, low), " AND ", self._operand(ORDER, high)
        return Condition((*self._tokens, " BETWEEN ", *bounds))

    def begins_with(self, prefix: str) -> Condition:
        return Condition(("begins_with(", *self._tokens, ", ", self._operand(ORDER, prefix), ")"))

    def contains(self, value: str | int) -> Condition:
        """A set or list contains the element, or a string contains the text."""
        return Condition(("contains(", *self._tokens, ", ", self._operand(PART, value), ")"))

    def is_in(self, values: Iterable[Value]) -> Condition:
        """The attribute has one of `values`; there must be 1 to 100."""
        tokens: list[str | _Name | _Operand] = []
        for value in values:
            tokens += [", ", self._operand(EQUAL, value)]
        return Condition((*self._tokens, " IN (", *tokens[1:], ")"))

    def _compare(self, operator: str, use: Use, value: Value) -> Condition:
        return Condition((*self._tokens, operator, self._operand(use, value)))

    def _operand(self, use: Use, value: Value) -> _Operand:
        return _Operand(self._path[0], use if len(self._path) == 1 else PART, value)


class Expressions:
    """The expressions of one request. They share the placeholders."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._request: dict[str, Any] = {}

    def add_condition(self, parameter: str, condition: Condition | None) -> None:
        """Add a condition, if there is one, as request parameter `parameter`."""
        if condition is not None:
            self._request[parameter] = self._render(condition.tokens)

    def add_update(self, changes: Changes) -> None:
        clauses: dict[str, list[str]] = {}
        for path, change in changes.items():
            clause, tokens = _render_change((path,) if isinstance(path, str) else path, change)
            clauses.setdefault(clause, []).append(self._render(tokens))
        lists = [f"{clause} {', '.join(texts)}" for clause, texts in clauses.items()]
        self._request["UpdateExpression"] = " ".join(lists)

    def add_projection(self, attributes: Sequence[str]) -> None:
        """Return only these attributes; none means all."""
        if attributes:
            names = [self._render((_Name(attribute),)) for attribute in attributes]
            self._request["ProjectionExpression"] = ", ".join(names)

    def build(self) -> dict[str, Any]:
        """Return the request parameters."""
        if self._numbers:
            names = {f"#{number}": name for name, number in self._numbers.items()}
            self._request["ExpressionAttributeNames"] = names
        if self._values:
            self._request["ExpressionAttributeValues"] = self._values
        return self._request

    def _render(self, tokens: _Tokens) -> str:
        return "".join(
            [
                token
                if isinstance(token, str)
                else f"#{self._get_number(token.attribute)}"
                if isinstance(token, _Name)
                else self._add_value(token)
                for token in tokens
            ]
        )

    def _get_number(self, attribute: str) -> int:
        return self._numbers.setdefault(attribute, len(self._numbers))

    def _add_value(self, operand: _Operand) -> str:
        number = self._get_number(operand.attribute)
        placeholder = f":{number}{operand.use}{len(self._values)}"
        self._values[placeholder] = encode_value(operand.value)
        return placeholder


def _render_path(path: tuple[str, ...]) -> _Tokens:
    tokens: list[str | _Name] = []
    for name in path:
        tokens += [".", _Name(name)]
    return tuple(tokens[1:])


def _render_change(path: Path, change: Change) -> tuple[str, _Tokens]:
    """Return the clause (SET, REMOVE, ADD or DELETE) and the change in it."""
    name, root = _render_path(path), path[0]
    use: Use = EQUAL if len(path) == 1 else PART
    match change:
        case None:
            return "REMOVE", name
        case Add(value):
            return "ADD", (*name, " ", _Operand(root, PART, value))
        case Discard(value):
            return "DELETE", (*name, " ", _Operand(root, PART, value))
        case Default(default):
            operand = _Operand(root, use, default)
            return "SET", (*name, " = if_not_exists(", *name, ", ", operand, ")")
        case value:
            return "SET", (*name, " = ", _Operand(root, use, value))


def encode_value(value: Value) -> dict[str, Any]:
    """Return a value in DynamoDB's format. Raises TypeError for other types and empty sets."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int():
            return {"N": str(value)}
        case Raw(stored):
            return dict(stored)
        case bytes():
            return {"B": value}
        case AbstractSet() if value and all(isinstance(each, str) for each in value):
            return {"SS": sorted(map(str, value))}
        case AbstractSet() if value and all(type(each) is int for each in value):
            return {"NS": [str(number) for number in sorted(map(int, value))]}
        case Mapping():
            return {"M": {name: encode_value(each) for name, each in value.items()}}
        case list() | tuple():
            return {"L": [encode_value(each) for each in value]}
    raise TypeError(f"{type(value).__name__}: cannot be stored in DynamoDB")


def encode_item(attributes: Attributes) -> dict[str, dict[str, Any]]:
    """Return attributes in DynamoDB's format, without those that are None."""
    return {name: encode_value(value) for name, value in attributes.items() if value is not None}
