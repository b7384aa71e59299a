"""Key conditions of queries: one partition, and a range of sort keys that is found by bisection."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from chatserver.dev.aws_limits.expressions import (
    ExpressionParser,
    Names,
    Unsupported,
    Values,
    to_sortable,
)

_get_sort_value = itemgetter(0)


class Comparison(NamedTuple):
    """A comparison of an attribute, by name or placeholder, with the values of placeholders."""

    name: str
    operator: str
    values: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def parse_key_condition(text: str) -> tuple[Comparison, ...]:
    """Return the comparisons of a condition, which are all joined by AND.

    Raises:
        Unsupported: the text is malformed or not supported.
    """
    parser, found = ExpressionParser(text), list[Comparison]()
    while parser.peek():
        if parser.accept("(") or parser.accept(")") or parser.accept("AND"):
            continue
        word = parser.next()
        if word == "begins_with":
            parser.expect("(")
            word = parser.next()
            parser.expect(",")
            found.append(Comparison(word, "begins_with", (parser.next(),)))
            parser.expect(")")
            continue
        operator, value = parser.next().upper(), parser.next()
        if operator == "BETWEEN":
            parser.expect("AND")
            found.append(Comparison(word, operator, (value, parser.next())))
        elif operator in ("=", "<", "<=", ">", ">="):
            found.append(Comparison(word, operator, (value,)))
        else:
            raise Unsupported(operator)
    return tuple(found)


def split(text: str, names: Names, values: Values, partition: str) -> tuple[Any, str, list[Any]]:
    """Return the partition's value, and the operator and values for the sort key.

    The operator is empty if the condition has no sort key. All values are sortable.

    Raises:
        Unsupported: the condition requires no partition.
    """
    wanted, operator, bounds = None, "", list[Any]()
    for comparison in parse_key_condition(text):
        found = [to_sortable(values[name]) for name in comparison.values]
        if names.get(comparison.name, comparison.name) == partition:
            wanted = found[0]
        else:
            operator, bounds = comparison.operator, found
    if wanted is None:
        raise Unsupported("Query condition missed key schema element")
    return wanted, operator, bounds


def find_range(
    order: Sequence[tuple[Any, Any]], operator: str, bounds: Sequence[Any]
) -> tuple[int, int]:
    """Return the positions in an ordered list of pairs whose sort values meet a condition."""

    def count_below(value: Any) -> int:
        return bisect_left(order, value, key=_get_sort_value)

    def count_upto(value: Any) -> int:
        return bisect_right(order, value, key=_get_sort_value)

    match operator:
        case "":
            return 0, len(order)
        case "=":
            return count_below(bounds[0]), count_upto(bounds[0])
        case "<":
            return 0, count_below(bounds[0])
        case "<=":
            return 0, count_upto(bounds[0])
        case ">":
            return count_upto(bounds[0]), len(order)
        case ">=":
            return count_below(bounds[0]), len(order)
        case "BETWEEN":
            return count_below(bounds[0]), count_upto(bounds[1])
        case _:  # UTF-8 has no byte 0xff
            return count_below(bounds[0]), count_below(bounds[0] + b"\xff")
