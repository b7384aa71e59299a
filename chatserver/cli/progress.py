"""How far a long run is: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import click

from chatserver.domain.clock import Clock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_S: Final = 5.0


class Part(Protocol):
    """A part of the work, and how much of it is done."""

    @property
    def read(self) -> int: ...

    @property
    def filled(self) -> int: ...

    @property
    def write_units(self) -> float: ...


class PlainReport:
    """Prints lines, at most one in `LINE_S` while something goes on."""

    def __init__(self, clock: Clock, *, is_aside: bool = False) -> None:
        self._clock = clock
        self._is_aside = is_aside
        self._title, self._items = "", 0
        self._next_at = float("-inf")

    def say(self, text: str) -> None:
        """Print a line."""
        click.echo(text, err=self._is_aside)

    def begin(self, title: str, items: int) -> None:
        """Begin to count, up to about `items`."""
        self._title, self._items = title, items
        self._next_at = self._clock.monotonic() + LINE_S

    def advance(self, parts: Sequence[Part]) -> None:
        """Print how far it is, if it is time to."""
        self.show(sum(part.read for part in parts), f"{_told(parts)} of about {self._items}")

    def show(self, done: int, told: str) -> None:
        """Print what is told of how far it is, if it is time to."""
        if self._clock.monotonic() >= self._next_at:
            self._next_at = self._clock.monotonic() + LINE_S
            click.echo(f"{self._title}: {told}", err=self._is_aside)

    def end(self) -> None:
        """Count no more."""


class BarReport:
    """Draws a bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)

    def begin(self, title: str, items: int) -> None:
        """Draw a bar that is full at about `items`."""
        self._task = self._progress.add_task(title, total=items or None, told="")

    def advance(self, parts: Sequence[Part]) -> None:
        """Move the bar."""
        self.show(sum(part.read for part in parts), _told(parts))

    def show(self, done: int, told: str) -> None:
        """Move the bar, and write beside it how far it is."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, told=told)

    def end(self) -> None:
        """Leave the bar as it is."""
        self._task = None


@contextlib.contextmanager
def open_report(clock: Clock, *, is_aside: bool = False) -> Iterator[PlainReport | BarReport]:
    """Return what tells how far a run is, on standard output, or aside: on standard error."""
    stream = sys.stderr if is_aside else sys.stdout
    if not stream.isatty():
        yield PlainReport(clock, is_aside=is_aside)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    # What goes into a pipe must not be drawn above the bar instead.
    is_shown = sys.stdout.isatty()
    console = Console(file=stream)
    with Progress(*columns, console=console, redirect_stdout=is_shown) as progress:
        yield BarReport(progress)


def _told(parts: Sequence[Part]) -> str:
    read, filled = sum(part.read for part in parts), sum(part.filled for part in parts)
    units = sum(part.write_units for part in parts)
    return f"{read} items read, {filled} filled, {units:.0f} write units"
