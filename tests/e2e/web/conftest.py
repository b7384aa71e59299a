"""Runs all browser tests in one event loop, because they share a browser."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule() -> Generator[None, pytest.Module, pytest.Module]:
    """Mark each module of the folder."""
    module = yield
    module.add_marker(pytest.mark.asyncio(loop_scope="session"))
    return module
