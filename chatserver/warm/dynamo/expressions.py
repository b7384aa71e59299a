"""Finds the values of an attribute in the expressions of a request.

The requests are made by `conditions`, whose placeholders contain the attribute and the use of each
value. Other placeholders are rejected, so that no key is sent without its tenant and no value
without its encryption.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from chatserver.warm.dynamo.conditions import EQUAL, PART

KEY_CONDITION: Final = "KeyConditionExpression"
_NAME: Final = re.compile(r"#\d+")
_VALUE: Final = re.compile(r":(\d+)([eop])\d+")


class Comparison(NamedTuple):
    """One use of an attribute in an expression, with the placeholder of its value.

    `is_equality`: the attribute is set to the value or compared with it for equality.
    """

    attribute: str
    is_equality: bool
    value: str


class UnknownForm(AssertionError):
    """An expression uses a key or an encrypted attribute in an unsupported form."""


def find_comparisons(
    request: Mapping[str, Any], attributes: frozenset[str]
) -> tuple[Comparison, ...]:
    """Return all uses of `attributes` in the expressions of a request or transaction action.

    Raises:
        UnknownForm: the expressions were not made by `conditions`, or contain a part of the value
            of one of `attributes`.
    """
    names = request.get("ExpressionAttributeNames", {})
    if not all(map(_NAME.fullmatch, names)):
        raise UnknownForm(f"{sorted(names)}: not made by `conditions`")
    comparisons: list[Comparison] = []
    for placeholder in request.get("ExpressionAttributeValues", ()):
        name, use = _parse_placeholder(placeholder)
        attribute = names.get(name)
        if attribute is None:
            raise UnknownForm(f"{placeholder}: its attribute {name} is missing")
        if attribute in attributes:
            if use == PART:
                raise UnknownForm(f"{attribute}: a part of a key or an encrypted value is used")
            comparisons.append(Comparison(attribute, use == EQUAL, placeholder))
    return tuple(comparisons)


@functools.lru_cache(maxsize=1024)
def _parse_placeholder(placeholder: str) -> tuple[str, str]:
    """Return the attribute's placeholder and the use of a value."""
    match = _VALUE.fullmatch(placeholder)
    if match is None:
        raise UnknownForm(f"{placeholder}: not made by `conditions`")
    return f"#{match[1]}", match[2]
