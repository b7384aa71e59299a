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

import base64
import functools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

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
Changes: TypeAlias = Mapping[str, Change]  # by attribute name, or by `Element`


class Element(str):
    """The key of a change to an element of a map attribute."""

    path: tuple[str, ...]

    def __new__(cls, *path: str) -> Self:
        element = super().__new__(cls, ".".join(path))
        element.path = path
        return element


# Text, the name of an attribute, or a value and its use. Plain tuples, because each request makes
# some, and named tuples take five times as long to make.
_Fragment: TypeAlias = "str | tuple[str] | tuple[str, Use, Value]"
_Fragments: TypeAlias = "tuple[_Fragment, ...]"


class Condition:
    """A condition. Combine conditions with ``&``, ``|`` and ``~``.

    These operators bind more strongly than comparisons: write ``(Attr(a) == 1) & (Attr(b) < 2)``.
    """

    __slots__ = ("_joiner", "tokens")

    def __init__(self, tokens: _Fragments, joiner: Literal["", " AND ", " OR "] = "") -> None:
        self.tokens = tokens
        self._joiner = joiner

    def __and__(self, other: Condition) -> Condition:
        return _join(" AND ", self, other)

    def __or__(self, other: Condition) -> Condition:
        return _join(" OR ", self, other)

    def __invert__(self) -> Condition:
        return Condition(("NOT ", *self._group("")))

    def __bool__(self) -> bool:
        raise TypeError("a condition is evaluated by DynamoDB; combine conditions with &, | and ~")

    def _group(self, joiner: str) -> _Fragments:
        """Return the tokens, in parentheses if needed; DynamoDB rejects redundant parentheses."""
        return self.tokens if self._joiner in ("", joiner) else ("(", *self.tokens, ")")


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

    def matches(self, value: Value | None) -> Condition:
        """The attribute has this value, or is absent if `value` is None."""
        return self.is_absent if value is None else self == value

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
        tokens: list[_Fragment] = []
        for value in values:
            tokens += [", ", self._operand(EQUAL, value)]
        return Condition((*self._tokens, " IN (", *tokens[1:], ")"))

    def _compare(self, operator: str, use: Use, value: Value) -> Condition:
        return Condition((*self._tokens, operator, self._operand(use, value)))

    def _operand(self, use: Use, value: Value) -> tuple[str, Use, Value]:
        return self._path[0], use if len(self._path) == 1 else PART, value


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
            names = path.path if isinstance(path, Element) else (path,)
            clause, tokens = _render_change(names, change)
            clauses.setdefault(clause, []).append(self._render(tokens))
        lists = [f"{clause} {', '.join(texts)}" for clause, texts in clauses.items()]
        self._request["UpdateExpression"] = " ".join(lists)

    def add_projection(self, attributes: Sequence[str]) -> None:
        """Return only these attributes; none means all."""
        if attributes:
            names = [self._render(((attribute,),)) for attribute in attributes]
            self._request["ProjectionExpression"] = ", ".join(names)

    def build(self) -> dict[str, Any]:
        """Return the request parameters."""
        if self._numbers:
            names = {f"#{number}": name for name, number in self._numbers.items()}
            self._request["ExpressionAttributeNames"] = names
        if self._values:
            self._request["ExpressionAttributeValues"] = self._values
        return self._request

    def _render(self, fragments: _Fragments) -> str:
        numbers, values, texts = self._numbers, self._values, []
        for fragment in fragments:
            if isinstance(fragment, str):
                texts.append(fragment)
                continue
            number = numbers.setdefault(fragment[0], len(numbers))
            if len(fragment) == 1:
                texts.append(f"#{number}")
            else:
                placeholder = f":{number}{fragment[1]}{len(values)}"
                values[placeholder] = encode_value(fragment[2])
                texts.append(placeholder)
        return "".join(texts)


@functools.lru_cache(maxsize=1024)
def _render_path(path: tuple[str, ...]) -> _Fragments:
    tokens: list[_Fragment] = []
    for name in path:
        tokens += [".", (name,)]
    return tuple(tokens[1:])


def _render_change(path: tuple[str, ...], change: Change) -> tuple[str, _Fragments]:
    """Return the clause (SET, REMOVE, ADD or DELETE) and the change in it."""
    name, root = _render_path(path), path[0]
    use: Use = EQUAL if len(path) == 1 else PART
    if change is None:
        return "REMOVE", name
    if isinstance(change, Add):
        return "ADD", (*name, " ", (root, PART, change.value))
    if isinstance(change, Discard):
        return "DELETE", (*name, " ", (root, PART, change.value))
    if isinstance(change, Default):
        return "SET", (*name, " = if_not_exists(", *name, ", ", (root, use, change.value), ")")
    return "SET", (*name, " = ", (root, use, change))


def encode_value(value: Value) -> dict[str, Any]:
    """Return a value in DynamoDB's format. Raises TypeError for other types and empty sets."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, Raw):
        return dict(value.stored)
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, AbstractSet) and value:
        if all(isinstance(each, str) for each in value):
            return {"SS": sorted(map(str, value))}
        if all(type(each) is int for each in value):
            return {"NS": [str(number) for number in sorted(map(int, value))]}
    if isinstance(value, Mapping):
        return {"M": {name: encode_value(each) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return {"L": [encode_value(each) for each in value]}
    raise TypeError(f"{type(value).__name__}: cannot be stored in DynamoDB")


def decode_bytes(stored: Mapping[str, Any]) -> bytes:
    """Decode binary: base64 text from `http_transport`, bytes from the SDK."""
    data: bytes | str = stored["B"]
    return base64.b64decode(data) if isinstance(data, str) else data


def encode_item(attributes: Attributes) -> dict[str, dict[str, Any]]:
    """Return attributes in DynamoDB's format, without those that are None."""
    return {name: encode_value(value) for name, value in attributes.items() if value is not None}
