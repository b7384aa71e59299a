"""Finds the values of an attribute in the expressions of a request.

The requests are made by `conditions`, whose placeholders contain the attribute and the use of each
value. All other requests are rejected, so that no key is sent without its tenant and no value
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
    """One use of an attribute in an expression: the operator and the value (``:name``).

    The operator is ``=`` or ``<``, which stands for all order comparisons.
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
        UnknownForm: the expressions were not made by `conditions`, or contain a part of the value
            of one of `attributes`.
    """
    names = request.get("ExpressionAttributeNames", {})
    if not all(map(_NAME.fullmatch, names)):
        raise UnknownForm(f"{sorted(names)}: not made by `conditions`")
    comparisons: list[Comparison] = []
    for placeholder in request.get("ExpressionAttributeValues", ()):
        name, use = _parse_placeholder(placeholder)
        attribute = names[name]
        if attribute in attributes:
            if use == PART:
                raise UnknownForm(f"{attribute}: a part of a key or an encrypted value is used")
            operator = "=" if use == EQUAL else "<"
            comparisons.append(Comparison(attribute, operator, placeholder))
    return tuple(comparisons)


@functools.lru_cache(maxsize=1024)
def _parse_placeholder(placeholder: str) -> tuple[str, str]:
    """Return the attribute's placeholder and the use of a value."""
    match = _VALUE.fullmatch(placeholder)
    if match is None:
        raise UnknownForm(f"{placeholder}: not made by `conditions`")
    return f"#{match[1]}", match[2]
