"""Short runs of benchmarks in tests."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from click.testing import CliRunner, Result

from tests.benchmarks.support import harness
from tests.support.fork_server import ForkedServer
from tests.support.stack import PATIENT


def run_benchmark(name: str, arguments: str, out: Path) -> tuple[Result, dict[str, Any]]:
    """Run a benchmark; return its exit code and output, and its file of figures.

    Its servers are forked, which takes less CPU time, and have long timeouts.
    """
    module = importlib.import_module(f"tests.benchmarks.{name}")
    if not hasattr(module, "main"):  # a folder
        module = importlib.import_module(f"tests.benchmarks.{name}.__main__")
    command = module.main
    assert isinstance(command, click.Command)
    with patch.multiple(harness, Process=ForkedServer, SETTINGS=PATIENT):
        result = CliRunner().invoke(command, [*arguments.split(), "--out", str(out)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert out.exists(), result.output
    return result, json.loads(out.read_text("utf-8"))
