"""Formulas of the capacity model: evaluation and display."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chatserver.operations.capacity.formula_evaluation import (
    FUNCTIONS,
    Row,
    compute,
    format_number,
    list_names,
)


def row(name: str, formula: str) -> Row:
    """Return a row with this formula."""
    return Row(name, name, formula)


def test_rows_use_inputs_and_earlier_rows() -> None:
    """Rows are computed in order, and the displayed numbers replace the names."""
    known = {"users": 1000.0, "share": 0.05}

    first, second = compute(
        "load",
        [row("online", "users * share"), row("left", "ceil((users - online) / 3)")],
        known,
        {"online"},
    )

    assert (first.value, second.value) == (50.0, 317.0)
    assert first.numbers == "1,000 * 0.05"
    assert second.numbers == "ceil((1,000 - 50) / 3)"
    assert second.constants == ["online"]
    assert known["left"] == 317.0


@pytest.mark.parametrize(
    ("formula", "error"),
    [
        ("nobody * 2", KeyError),
        ("__import__('os')", ValueError),
        ("users.real", ValueError),
        ("users ** users", ValueError),
        ("round(users)", ValueError),
        ("'text'", ValueError),
        ("users * 1e308 * 1e308", ValueError),
    ],
)
def test_formula_is_arithmetic_on_known_names(formula: str, error: type[Exception]) -> None:
    """No other code is run, and the result is a finite number."""
    with pytest.raises(error):
        compute("load", [row("x", formula)], {"users": 3.0})


_leaf = st.sampled_from(["a", "b", "c", "2", "0.5"])
_formulas = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
    ),
    max_leaves=8,
)


@given(_formulas, st.tuples(*[st.integers(1, 50)] * 3))
def test_displayed_formula_has_the_displayed_value(formula: str, values: tuple[int, ...]) -> None:
    """The displayed formula has the parentheses that it needs."""
    known = {name: float(value) for name, value in zip("abc", values, strict=True)}
    try:
        (found,) = compute("load", [row("x", formula)], known)
    except ZeroDivisionError:
        return

    shown = eval(found.numbers, dict(FUNCTIONS))

    assert math.isclose(shown, found.value, rel_tol=1e-9, abs_tol=1e-9)


def test_list_names_returns_each_name_once_in_order() -> None:
    """Function names are not included."""
    assert list_names("max(b, a) * b + ceil(c)") == ("b", "a", "c")


@pytest.mark.parametrize(
    ("value", "text"), [(1234567, "1,234,567"), (0.000625, "0.000625"), (12345.6, "12,346")]
)
def test_format_number_is_readable(value: float, text: str) -> None:
    """Large numbers have thousands separators."""
    assert format_number(value) == text
