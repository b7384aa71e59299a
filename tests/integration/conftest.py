"""Fixtures of more than one folder of these tests."""

from __future__ import annotations

from tests.integration.api.fixtures import api, caller
from tests.integration.hot.fixtures import hot, scripts
from tests.integration.warm.fixtures import bare, no_backoff, tables, warm_settings
from tests.integration.workers.fixtures import container, gateway

__all__ = [
    "api",
    "bare",
    "caller",
    "container",
    "gateway",
    "hot",
    "no_backoff",
    "scripts",
    "tables",
    "warm_settings",
]
