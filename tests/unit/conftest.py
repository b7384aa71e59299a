"""Fails unit tests that do I/O: they run in any checkout, without servers and other tools."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.io_records import recorded_io


@pytest.hookimpl(wrapper=True)
def fail_after_io() -> Generator[None]:
    """Check a test and the set-up of its fixtures."""
    with recorded_io() as found:
        yield
    assert not found, f"a unit test does no I/O; move it to another folder: {found[:3]}"


pytest_runtest_setup = pytest_runtest_call = fail_after_io
