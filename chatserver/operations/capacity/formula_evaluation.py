"""Evaluation of named formulas; the text that is evaluated is also the text displayed.

A formula consists of numbers, names, ``+ - * /``, and the functions in `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Final


def _zero_above(value: float, limit: float) -> float:
    return value if value <= limit else 0.0


def _round_to_power2(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


# upto(x, limit): x if it is at most `limit`, otherwise 0. power2(x): x rounded up to a power of 2.
FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "ceil": lambda value: float(math.ceil(value)),
    "max": max,
    "min": min,
    "upto": _zero_above,
    "power2": _round_to_power2,
}
_OPERATORS: Final[Mapping[type, tuple[Callable[[float, float], float], str]]] = {
    ast.Add: (operator.add, "+"),
    ast.Sub: (operator.sub, "-"),
    ast.Mult: (operator.mul, "*"),
    ast.Div: (operator.truediv, "/"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row of the model: name, label, unit and formula."""

    tier: str
    name: str
    label: str
    unit: str
    formula: str


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """An evaluated row. `numbers` is the formula with its names replaced by numbers."""

    row: Row
    value: float
    numbers: str
    names: tuple[str, ...]  # names in the formula, in order of use


def compute(rows: Iterable[Row], by_name: dict[str, float]) -> list[Value]:
    """Evaluate rows in order. A formula may use the values in `by_name` and earlier rows.

    The results are added to `by_name`. Raises KeyError for an unknown name, and ValueError for an
    invalid formula or a result that is not finite.
    """
    values = []
    for row in rows:
        tree = _parse(row.formula)
        value = _evaluate(tree, by_name)
        if not math.isfinite(value):
            raise ValueError(f"{row.name}: {row.formula} is {value}")
        by_name[row.name] = value
        values.append(Value(row, value, _format(tree, by_name), list_names(row.formula)))
    return values


@functools.lru_cache(maxsize=1024)
def _parse(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


@functools.lru_cache(maxsize=1024)
def list_names(formula: str) -> tuple[str, ...]:
    tree = _parse(formula)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names.sort(key=lambda node: node.col_offset)
    return tuple(dict.fromkeys(node.id for node in names if id(node) not in called))


def format_number(value: float) -> str:
    """Format a number for display: 1,234,567 or 0.00123."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)][0](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return float(FUNCTIONS[name](*(_evaluate(arg, values) for arg in args)))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic")


def _format(node: ast.expr, values: Mapping[str, float]) -> str:
    match node:
        case ast.Constant(value=int() | float() as number):
            return format_number(float(number))
        case ast.Name(id=name):
            return format_number(values[name])
        case ast.BinOp(left=left, op=op, right=right):
            sign = _OPERATORS[type(op)][1]
            return f"{_format_operand(left, op, values, is_right=False)} {sign} " + _format_operand(
                right, op, values, is_right=True
            )
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(_format(arg, values) for arg in args)})"
    raise AssertionError(ast.dump(node))


def _format_operand(
    node: ast.expr, outer: ast.operator, values: Mapping[str, float], *, is_right: bool
) -> str:
    text = _format(node, values)
    if not isinstance(node, ast.BinOp):
        return text
    strong = (ast.Mult, ast.Div)
    is_weaker = isinstance(outer, strong) and not isinstance(node.op, strong)
    is_kept = is_right and isinstance(outer, (ast.Sub, ast.Div))
    is_kept = is_kept and isinstance(outer, strong) == isinstance(node.op, strong)
    return f"({text})" if is_weaker or is_kept else text
