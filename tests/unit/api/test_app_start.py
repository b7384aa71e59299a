"""Startup checks of the HTTP application."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from chatserver.api.app import limit_connections, warn_of_open_registration
from chatserver.api.response_headers import build_content_security_policy
from chatserver.config import Api, Auth, Settings


def test_content_security_policy_has_only_the_origin_of_the_gateway() -> None:
    """A CSP source has no path and no query."""
    policy = build_content_security_policy("wss://chat.example:8443/socket?x=1")

    assert "connect-src 'self' wss://chat.example:8443;" in policy


@pytest.mark.parametrize(
    ("auth", "api", "is_warned"),
    [
        (Auth(), Api(), True),
        (Auth(registration="closed"), Api(), False),
        (Auth(local_accounts=False), Api(), False),
        (Auth(), Api(demo_users=["alice"]), False),
    ],
)
def test_start_with_open_registration_logs_a_warning(auth: Auth, api: Api, is_warned: bool) -> None:
    """Open registration is never enabled without a warning."""
    with capture_logs() as logs:
        warn_of_open_registration(Settings(auth=auth, api=api))

    assert ["CHAT_AUTH_REGISTRATION=closed" in line["fix"] for line in logs] == [True] * is_warned


def test_connection_limit_fits_the_open_file_limit() -> None:
    """The limit is reduced with a log event, and never raised above the setting."""
    with capture_logs() as logs:
        fitted = limit_connections(Api(), 1000)

    assert fitted.connections_max * 9 // 8 + 256 <= 1000
    assert [line["event"] for line in logs] == ["api.connections_reduced"]
    assert limit_connections(Api(), 100_000) == Api()
    assert limit_connections(Api(), 10).connections_max == 16
