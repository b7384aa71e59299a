"""Evaluation of named formulas; the text that is evaluated is also the text displayed.

A formula consists of numbers, names, ``+ - * /``, and the functions in `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec


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
_OPERATORS: Final[Mapping[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_NAME_OR_NUMBER: Final = re.compile(rf"{_NAME.pattern}|\d+(?:\.\d+)?")


class Row(NamedTuple):
    """One row of the model."""

    name: str
    label: str
    formula: str
    unit: str = ""


class EvaluatedRow(msgspec.Struct, frozen=True):
    """An evaluated row. `numbers` is the formula with its names replaced by numbers.

    `constants` has the measured constants in the formula, in order of use.
    """

    tier: str
    name: str
    label: str
    value: float
    unit: str
    formula: str
    numbers: str
    constants: list[str]


def compute(
    tier: str, rows: Iterable[Row], by_name: dict[str, float], constants: Container[str] = ()
) -> list[EvaluatedRow]:
    """Evaluate rows in order. A formula may use the values in `by_name` and earlier rows.

    The results are added to `by_name`. Raises KeyError for an unknown name, and ValueError for an
    invalid formula or a result that is not finite.
    """
    lines = []
    for name, label, formula, unit in rows:
        value = _evaluate(_parse(formula), by_name)
        if not math.isfinite(value):
            raise ValueError(f"{name}: {formula} is {value}")
        by_name[name] = value
        numbers = _NAME_OR_NUMBER.sub(functools.partial(_format_word, by_name), formula)
        measured = [constant for constant in list_names(formula) if constant in constants]
        lines.append(
            EvaluatedRow(
                tier=tier,
                name=name,
                label=label,
                value=value,
                unit=unit,
                formula=formula,
                numbers=numbers,
                constants=measured,
            )
        )
    return lines


@functools.lru_cache(maxsize=1024)
def _parse(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _format_word(by_name: Mapping[str, float], word: re.Match[str]) -> str:
    """Return the number for a name or a number in a formula; a function stays as it is."""
    text = word[0]
    if text in FUNCTIONS:
        return text
    return format_number(by_name[text] if text in by_name else float(text))


def list_names(formula: str) -> tuple[str, ...]:
    names = dict.fromkeys(_NAME.findall(formula))
    return tuple(name for name in names if name not in FUNCTIONS)


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
            return _OPERATORS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return float(FUNCTIONS[name](*(_evaluate(arg, values) for arg in args)))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic")
