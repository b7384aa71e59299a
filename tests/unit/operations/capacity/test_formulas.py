"""The displayed numbers of a line give its value."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chatserver.operations.capacity.formulas import FUNCTIONS, Row, compute, format_number, names_in


def row(name: str, formula: str) -> Row:
    """A row of no tier."""
    return Row("load", name, name, "", formula)


def test_rows_read_what_is_known_and_what_came_before() -> None:
    """In their order; the numbers stand where the names stood."""
    known = {"users": 1000.0, "share": 0.05}

    first, second = compute(
        [row("online", "users * share"), row("left", "ceil((users - online) / 3)")], known
    )

    assert (first.value, second.value) == (50.0, 317.0)
    assert first.numbers == "1,000 * 0.05"
    assert second.numbers == "ceil((1,000 - 50) / 3)"
    assert second.names == ("users", "online")
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
    """Nothing else is run, and nothing comes out that is no number."""
    with pytest.raises(error):
        compute([row("x", formula)], {"users": 3.0})


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
def test_numbers_inserted_come_to_the_same_value(formula: str, values: tuple[int, ...]) -> None:
    """Brackets are placed so that evaluating the displayed formula gives the displayed value."""
    known = {name: float(value) for name, value in zip("abc", values, strict=True)}
    try:
        (found,) = compute([row("x", formula)], known)
    except ZeroDivisionError:
        return

    shown = eval(
        found.numbers.replace(",", ",") if "," in formula else found.numbers, dict(FUNCTIONS)
    )

    assert math.isclose(shown, found.value, rel_tol=1e-9, abs_tol=1e-9)


def test_names_are_told_once_in_their_order() -> None:
    """Functions are none."""
    assert names_in("max(b, a) * b + ceil(c)") == ("b", "a", "c")


@pytest.mark.parametrize(
    ("value", "text"), [(1234567, "1,234,567"), (0.000625, "0.000625"), (12345.6, "12,346")]
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    """Thousands are divided, small ones have four digits."""
    assert format_number(value) == text
