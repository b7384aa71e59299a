"""Output of benchmarks: printed, and written to a file only if `--out` names one.

The published figures are in docs/performance, so `--out docs/performance/<name>.json` updates them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
PUBLISHED = Path(__file__).parents[2] / "docs" / "performance"


def out_option(command: Command) -> Command:
    """Add the option `--out`, which is passed as `out`."""
    path = click.Path(dir_okay=False, writable=True, path_type=Path)
    option = click.option("--out", type=path, help="Also write the figures to this file.")
    declared: Command = option(command)
    return declared


def write_figures(figures: object, out: Path | None) -> None:
    """Write the figures to `out` as JSON; do nothing if it is None."""
    if out is not None:
        out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
