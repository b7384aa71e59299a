"""Fixtures of the security tests."""

from __future__ import annotations

from tests.e2e.web.fixtures import browser, visit, web
from tests.integration.api.fixtures import api, caller
from tests.security.support.fixtures import accounts_api, client, new_client

__all__ = [
    "accounts_api",
    "api",
    "browser",
    "caller",
    "client",
    "new_client",
    "visit",
    "web",
]
