"""Line charts as SVG, without scripts; colors come from the page's style sheet. No I/O.

Lines also differ in their dash patterns, for color-blind readers. A value of None is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

import msgspec

WIDTH, HEIGHT = 380, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 36
LINES_MAX: Final = 6  # number of distinct colors and dash patterns

Point = tuple[float, float | None]


class ChartLine(msgspec.Struct, frozen=True):
    """A line: its name, and its points in ascending order of x."""

    name: str
    points: Sequence[Point]


class Chart(msgspec.Struct, frozen=True):
    """A chart with its axes. `ticks`: (x position, label) pairs; generated if empty."""

    title: str
    about: str
    x_label: str
    y_label: str
    lines: Sequence[ChartLine]
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] = ()

    @property
    def values(self) -> list[float]:
        return [y for line in self.lines for _, y in line.points if y is not None]


def draw(chart: Chart, number: int) -> str:
    """Render a chart as an ``<svg>`` with title and description; `number` makes the ids unique."""
    xs = [x for line in chart.lines for x, _ in line.points] or [0.0]
    low_x, high_x = min(xs), max(max(xs), min(xs) + 1)
    scale_y, y_ticks = _build_y_axis(chart)

    def scale_x(x: float) -> float:
        return _LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - _LEFT - _RIGHT)

    x_ticks = chart.ticks or [(x, f"{x:g}") for x in _compute_ticks(low_x, high_x, 5)]
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t{number} d{number}">',
        f'<title id="t{number}">{escape(chart.title)}</title>',
        f'<desc id="d{number}">{escape(chart.about)}</desc>',
    ]
    for y, label in y_ticks:
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )
    bottom = HEIGHT - _BOTTOM
    for x, label in x_ticks:
        if low_x <= x <= high_x:
            parts.append(
                f'<text x="{scale_x(x):.1f}" y="{bottom + 15}" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="axis" x="{middle:.0f}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
    )
    for index, line in enumerate(chart.lines[:LINES_MAX]):
        parts.extend(_draw_line(line, index, scale_x, scale_y))
    return "".join([*parts, "</svg>"])


def _draw_line(
    line: ChartLine,
    index: int,
    scale_x: Callable[[float], float],
    scale_y: Callable[[float], float],
) -> Iterator[str]:
    run: list[tuple[float, float]] = []
    for x, y in [*line.points, (0.0, None)]:
        if y is not None:
            run.append((scale_x(x), scale_y(y)))
            continue
        if len(run) == 1:
            (px, py) = run[0]
            yield f'<circle class="dot s{index}" cx="{px:.1f}" cy="{py:.1f}" r="2.5"/>'
        elif run:
            steps = " ".join(f"{px:.1f},{py:.1f}" for px, py in run)
            yield f'<polyline class="line s{index}" points="{steps}"/>'
        run = []


def _build_y_axis(chart: Chart) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """Return `(scale_y, ticks)`: a function from value to y position, and labeled ticks."""
    space = HEIGHT - _TOP - _BOTTOM
    values = chart.values
    if chart.is_log:
        positive = [value for value in values if value > 0] or [1.0]
        low = math.floor(math.log10(min(positive)))
        high = max(low + 1, math.ceil(math.log10(max(positive))))

        def scale_log(value: float) -> float:
            share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
            return _TOP + (1 - share) * space

        return scale_log, [
            (scale_log(10.0**n), format_short(10.0**n)) for n in range(low, high + 1)
        ]
    ticks = _compute_ticks(0.0, max(values, default=1.0) or 1.0, 4)
    top = max(ticks[-1], max(values, default=1.0))

    def scale_linear(value: float) -> float:
        return _TOP + (1 - value / top) * space

    return scale_linear, [(scale_linear(tick), format_short(tick)) for tick in ticks]


def _compute_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` equally spaced round numbers that cover `low` to `high`."""
    raw = (high - low) / count or 1.0
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * n for n in (1, 2, 5, 10) if scale * n >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, first + math.ceil((high - low) / step - 1e-9) + 1)]


def format_short(value: float) -> str:
    """Format a number in few characters: 1500000 as 1.5M."""
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g}{letter}"
    return f"{value:.3g}"
