"""PromQL evaluator over given samples, to test alerts without a Prometheus server.

Expressions are parsed by promql-parser, so expressions that Prometheus rejects are rejected here.
Only the parts of the language that our alerts and dashboards use are evaluated; others raise
`Unsupported`. Times are seconds since the start of the series. Semantics are those of Prometheus:
an instant vector selects the newest sample of the last five minutes, `rate` and `increase` are
extrapolated.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import promql_parser as ast

LOOKBACK_S = 300.0
NAME = "__name__"
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Samples = list[tuple[float, float]]  # (time, value), ordered by time


class Unsupported(Exception):
    """This part of the language is not implemented."""


@dataclasses.dataclass(frozen=True)
class Series:
    """Samples of one series."""

    labels: Mapping[str, str]  # including the metric name
    samples: Samples

    def between(self, after: float, upto: float) -> Samples:
        """Return the samples of a left-open window, as in current Prometheus."""
        return [each for each in self.samples if after <= each[0] <= upto]


def parse_series(text: str, values: str, interval_s: float) -> Series:
    """Parse a series in the notation of `promtool test rules`: ``1+2x3``, ``5x2``, ``_``, ``7``."""
    selector = ast.parse(text)
    assert isinstance(selector, ast.VectorSelector), text
    labels = {each.name: each.value for each in selector.matchers.matchers}
    labels[NAME] = selector.name or labels[NAME]
    samples: Samples = []
    at = 0
    for word in values.split():
        found = re.fullmatch(r"(_|[-0-9.e]+?)(?:([-+])([0-9.e]+))?(?:x(\d+))?", word)
        assert found, f"{word} of {text}"
        start, sign, step, times = found.groups()
        # `5x2` and `5+0x2` are three samples; `_x2` is two missing samples.
        count = 1 if times is None else int(times) + (start != "_")
        for n in range(count):
            if start != "_":
                change = float(step) * (1 if sign == "+" else -1) if step else 0.0
                samples.append((at * interval_s, float(start) + n * change))
            at += 1
    return Series(labels, samples)


def walk(expr: ast.Expr) -> Iterator[ast.Expr]:
    """Return all nested expressions, beginning with the expression itself."""
    found: list[ast.Expr] = []
    ast.walk(expr, lambda each: found.append(each))
    return iter(found)


def selectors_of(expr: ast.Expr) -> list[ast.VectorSelector]:
    """Return the selectors of an expression."""
    found = []
    for each in walk(expr):
        if isinstance(each, ast.MatrixSelector):
            each = each.vector_selector
        if isinstance(each, ast.VectorSelector):
            found.append(each)
    return found


def labels_named_in(expr: ast.Expr) -> set[str]:
    """Return the labels by which an expression groups, joins or ranks."""
    found: set[str] = set()
    for each in walk(expr):
        if isinstance(each, ast.AggregateExpr) and each.modifier is not None:
            found |= set(each.modifier.labels)
        if isinstance(each, ast.BinaryExpr) and each.modifier is not None:
            found |= set(each.modifier.group_labels or ())
            if each.modifier.matching is not None:
                found |= set(each.modifier.matching.labels)
    return found


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan if not a or math.isnan(a) else math.inf * a,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": len,
    "avg": lambda values: sum(values) / len(values),
}


class Answers:
    """Evaluates expressions over series."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = series

    def at(self, text: str, now: float) -> Vector | float:
        """Evaluate an expression at a time: a vector, without metric names, or a number."""
        return self._eval(ast.parse(text), now)

    def _eval(self, expr: Any, now: float) -> Any:
        match expr:
            case ast.NumberLiteral():
                return expr.val
            case ast.ParenExpr():
                return self._eval(expr.expr, now)
            case ast.VectorSelector():
                return self._instant(expr, now)
            case ast.AggregateExpr():
                return self._aggregate(expr, now)
            case ast.BinaryExpr():
                return _binary(expr, self._eval(expr.lhs, now), self._eval(expr.rhs, now))
            case ast.Call():
                return self._call(expr, now)
        raise Unsupported(type(expr).__name__)

    def _select(self, selector: ast.VectorSelector) -> list[Series]:
        if selector.matchers.or_matchers or selector.at is not None:
            raise Unsupported(str(selector))
        wanted = [each for each in self._series if each.labels[NAME] == selector.name]
        return [
            each
            for each in wanted
            if all(_matches(matcher, each.labels) for matcher in selector.matchers.matchers)
        ]

    def _instant(self, selector: ast.VectorSelector, now: float) -> Vector:
        then = now - _seconds(selector.offset)
        found: Vector = {}
        for each in self._select(selector):
            samples = each.between(then - LOOKBACK_S, then)
            if samples:
                found[frozenset(each.labels.items())] = samples[-1][1]
        return found

    def _aggregate(self, expr: ast.AggregateExpr, now: float) -> Vector:
        name = str(expr.op)
        groups: dict[Labels, list[float]] = {}
        by = None if expr.modifier is None else expr.modifier
        for labels, value in self._eval(expr.expr, now).items():
            if by is None:
                kept: Labels = frozenset()
            else:
                is_by = by.type == ast.AggModifierType.By
                kept = frozenset(
                    each
                    for each in labels
                    if (each[0] in by.labels) == is_by and (is_by or each[0] != NAME)
                )
            groups.setdefault(kept, []).append(value)
        if name == "topk":
            raise Unsupported(name)
        return {labels: float(_AGGREGATES[name](values)) for labels, values in groups.items()}

    def _call(self, expr: ast.Call, now: float) -> Any:
        name, args = expr.func.name, list(expr.args)
        if name == "time":
            return now
        if name in ("rate", "increase", "max_over_time"):
            return self._over_time(name, args[0], now)
        if name == "histogram_quantile":
            return _quantiles(self._eval(args[0], now), self._eval(args[1], now))
        if name == "absent":
            return {} if self._eval(args[0], now) else {frozenset(): 1.0}
        if name in ("clamp_min", "vector"):
            value = self._eval(args[0], now)
            if name == "vector":
                return {frozenset(): value}
            least = self._eval(args[1], now)
            return {_unnamed(labels): max(each, least) for labels, each in value.items()}
        raise Unsupported(name)

    def _over_time(self, name: str, expr: ast.MatrixSelector, now: float) -> Vector:
        selector, window = expr.vector_selector, _seconds(expr.range)
        then = now - _seconds(selector.offset)
        found: Vector = {}
        for each in self._select(selector):
            samples = each.between(then - window, then)
            labels = _unnamed(frozenset(each.labels.items()))
            if name == "max_over_time" and samples:
                found[labels] = max(value for _, value in samples)
            elif name != "max_over_time" and len(samples) > 1:
                rise = _increase(samples, then - window, then)
                found[labels] = rise / window if name == "rate" else rise
        return found


def _seconds(span: timedelta | None) -> float:
    return 0.0 if span is None else span.total_seconds()


def _unnamed(labels: Labels) -> Labels:
    return frozenset(each for each in labels if each[0] != NAME)


def _matches(matcher: ast.Matcher, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case ast.MatchOp.Equal:
            return value == matcher.value
        case ast.MatchOp.NotEqual:
            return value != matcher.value
        case ast.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
    return re.fullmatch(matcher.value, value) is None


def _increase(samples: Samples, start: float, end: float) -> float:
    """Return the increase of a counter in a window, extrapolated as in Prometheus."""
    rise = samples[-1][1] - samples[0][1]
    rise += sum(old for (_, old), (_, new) in itertools.pairwise(samples) if new < old)
    covered = samples[-1][0] - samples[0][0]
    average = covered / (len(samples) - 1)
    before, after = samples[0][0] - start, end - samples[-1][0]
    if rise > 0 and samples[0][1] >= 0:  # a counter was never below zero
        before = min(before, covered * samples[0][1] / rise)
    span = covered
    for gap in (before, after):
        span += gap if gap < average * 1.1 else average / 2
    return rise * span / covered


def _binary(expr: ast.BinaryExpr, left: Any, right: Any) -> Any:
    name, modifier = str(expr.op), expr.modifier
    if modifier is not None and (modifier.return_bool or modifier.group_labels):
        raise Unsupported(str(modifier))
    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[name](left, right)
    if isinstance(right, float):
        return _kept(name, {labels: (each, right) for labels, each in left.items()}, 0)
    if isinstance(left, float):
        return _kept(name, {labels: (left, each) for labels, each in right.items()}, 1)
    if modifier is not None and "group" in str(modifier):
        raise Unsupported(str(modifier))
    matching = None if modifier is None else modifier.matching
    by_key = {_key(labels, matching): each for labels, each in right.items()}
    if name in ("and", "unless"):
        is_and = name == "and"
        return {n: v for n, v in left.items() if (_key(n, matching) in by_key) == is_and}
    if name == "or":
        known = {_key(labels, matching) for labels in left}
        return left | {n: v for n, v in right.items() if _key(n, matching) not in known}
    keys = [_key(labels, matching) for labels in left]
    assert len(set(keys)) == len(keys) and len(by_key) == len(right), f"many to many: {expr}"
    pairs = {n: (v, by_key[k]) for (n, v), k in zip(left.items(), keys, strict=True) if k in by_key}
    return _kept(name, pairs, 0)


def _key(labels: Labels, matching: Any) -> Labels:
    labels = _unnamed(labels)
    if matching is None:
        return labels
    is_on = matching.type == ast.LabelModifierType.Include
    return frozenset(each for each in labels if (each[0] in matching.labels) == is_on)


def _kept(name: str, pairs: Mapping[Labels, tuple[float, float]], kept: int) -> Vector:
    """Apply an operator to pairs; a comparison returns the side that is a vector."""
    if name in _COMPARISONS:
        holds = _COMPARISONS[name]
        return {labels: pair[kept] for labels, pair in pairs.items() if holds(*pair)}
    return {_unnamed(labels): _ARITHMETIC[name](*pair) for labels, pair in pairs.items()}


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        (le,) = [value for name, value in labels if name == "le"]
        group = frozenset(each for each in labels if each[0] not in ("le", NAME))
        groups.setdefault(group, []).append((float(le.replace("+Inf", "inf")), count))
    return {labels: _quantile(quantile, sorted(group)) for labels, group in groups.items()}


def _quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    total = buckets[-1][1]
    if len(buckets) < 2 or not total or not math.isinf(buckets[-1][0]):
        return math.nan
    rank = quantile * total
    below_le, below = 0.0, 0.0
    for le, count in buckets:
        if count >= rank:
            if math.isinf(le):
                return below_le
            return below_le + (le - below_le) * (rank - below) / (count - below)
        below_le, below = le, count
    return below_le
