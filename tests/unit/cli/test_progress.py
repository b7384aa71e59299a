"""Progress of a command: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from chatserver.cli.progress import LINE_S, BarReport, PlainReport
from chatserver.warm.schema.migrations.progress_and_lock import ScanSegment
from tests.support.fake_clocks import FakeClock


def segment(read: int, filled: int, write_units: float) -> ScanSegment:
    return ScanSegment(0, read=read, filled=filled, write_units=write_units)


def test_plain_report_prints_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Frequent progress does not flood a log."""
    clock = FakeClock(0.0)
    report = PlainReport(clock)
    report.begin("2 files-filled", 1000)
    for second in range(11):
        clock.now = float(second)
        report.advance([segment(second * 10, second, 2.0 * second), segment(1, 1, 2.0)])
    report.end()

    lines = capsys.readouterr().out.splitlines()
    assert LINE_S == 5
    assert lines == [
        "2 files-filled: 51 items read, 6 filled, 12 write units of about 1000",
        "2 files-filled: 101 items read, 11 filled, 22 write units of about 1000",
    ]


def test_bar_shows_percentage_and_counts() -> None:
    """Printed lines appear above the bar."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    columns = "{task.description} {task.percentage:.0f}% {task.fields[text]}"
    with Progress(columns, console=console) as progress:
        report = BarReport(progress)
        report.begin("2 files-filled", 200)
        report.advance([segment(100, 7, 14.0)])
        report.print_line("index [files]: serves")
        report.end()

    assert "2 files-filled 50% 100 items read, 7 filled, 14 write units" in screen.getvalue()
    assert "index [files]: serves" in screen.getvalue()
