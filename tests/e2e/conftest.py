"""Fixtures of the browser tests and of the tests of whole systems."""

from __future__ import annotations

from tests.e2e.web.fixtures import browser, firefox, visit, visit_in_firefox, web

__all__ = ["browser", "firefox", "visit", "visit_in_firefox", "web"]
