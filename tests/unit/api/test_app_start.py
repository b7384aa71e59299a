"""Decisions of the HTTP application at startup."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from chatserver.api.app import fit_connections, warn_of_open_registration
from chatserver.api.response_headers import content_security_policy
from chatserver.config import Api, Auth, Settings


def test_policy_names_the_gateways_origin_only() -> None:
    """The path and query of the gateway's address are no part of a source."""
    policy = content_security_policy("wss://chat.example:8443/socket?x=1")

    assert "connect-src 'self' wss://chat.example:8443;" in policy


@pytest.mark.parametrize(
    ("auth", "api", "is_told"),
    [
        (Auth(), Api(), True),
        (Auth(registration="closed"), Api(), False),
        (Auth(local_accounts=False), Api(), False),
        (Auth(), Api(demo_users=["alice"]), False),
    ],
)
def test_start_with_open_registration_is_told_in_the_log(
    auth: Auth, api: Api, is_told: bool
) -> None:
    """Open registration is never enabled without a warning."""
    with capture_logs() as logs:
        warn_of_open_registration(Settings(auth=auth, api=api))

    assert ["CHAT_AUTH_REGISTRATION=closed" in line["fix"] for line in logs] == [True] * is_told


def test_connections_fit_into_the_open_files_that_a_process_may_have() -> None:
    """Fewer files, fewer connections, and a line in the log; never more than the setting."""
    with capture_logs() as logs:
        fitted = fit_connections(Api(), 1000)

    assert fitted.connections_max * 9 // 8 + 256 <= 1000
    assert [line["event"] for line in logs] == ["api.connections_reduced"]
    assert fit_connections(Api(), 100_000) == Api()
    assert fit_connections(Api(), 10).connections_max == 16
