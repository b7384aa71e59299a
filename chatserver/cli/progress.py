"""Progress display for long-running commands: a bar in a terminal, periodic lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from chatserver.domain.clock import Clock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from chatserver.warm.schema.migrations.progress_and_lock import ScanSegment

LINE_S: Final = 5.0


class PlainReport:
    """Prints progress lines, at most one per `LINE_S`."""

    def __init__(self, clock: Clock, *, is_stderr: bool = False) -> None:
        self._clock = clock
        self._is_aside = is_stderr
        self._title, self._items = "", 0
        self._next_at = float("-inf")

    def print_line(self, text: str) -> None:
        click.echo(text, err=self._is_aside)

    def begin(self, title: str, items: int) -> None:
        """Start a task of about `items` items."""
        self._title, self._items = title, items
        self._next_at = self._clock.monotonic() + LINE_S

    def advance(self, parts: Sequence[ScanSegment]) -> None:
        """Print the progress of all parts, at most once per `LINE_S`."""
        self.show(
            sum(part.read for part in parts), f"{_format_parts(parts)} of about {self._items}"
        )

    def show(self, done: int, text: str) -> None:
        """Print the progress text, at most once per `LINE_S`."""
        if self._clock.monotonic() >= self._next_at:
            self._next_at = self._clock.monotonic() + LINE_S
            click.echo(f"{self._title}: {text}", err=self._is_aside)

    def end(self) -> None:
        """End the task."""


class BarReport:
    """Draws a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def print_line(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def begin(self, title: str, items: int) -> None:
        self._task = self._progress.add_task(title, total=items or None, text="")

    def advance(self, parts: Sequence[ScanSegment]) -> None:
        self.show(sum(part.read for part in parts), _format_parts(parts))

    def show(self, done: int, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, text=text)

    def end(self) -> None:
        """End the task; its bar remains visible."""
        self._task = None


@contextlib.contextmanager
def open_report(clock: Clock, *, is_stderr: bool = False) -> Iterator[PlainReport | BarReport]:
    """Return a progress reporter for standard output, or for standard error if `is_stderr`."""
    stream = sys.stderr if is_stderr else sys.stdout
    if not stream.isatty():
        yield PlainReport(clock, is_stderr=is_stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    # If standard output is a pipe, rich must not redirect it to the terminal.
    is_shown = sys.stdout.isatty()
    console = Console(file=stream)
    with Progress(*columns, console=console, redirect_stdout=is_shown) as progress:
        yield BarReport(progress)


def _format_parts(parts: Sequence[ScanSegment]) -> str:
    read, filled = sum(part.read for part in parts), sum(part.filled for part in parts)
    units = sum(part.write_units for part in parts)
    return f"{read} items read, {filled} filled, {units:.0f} write units"
