"""Warnings about settings that expose more than intended."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from chatserver.telemetry.exposure_warnings import (
    warn_of_public_metrics,
    warn_of_trusted_proxies,
)


@pytest.mark.parametrize(
    ("host", "port", "is_warned"),
    [
        ("0.0.0.0", 9100, True),
        ("::", 9100, True),
        ("0.0.0.0", None, False),
        ("127.0.0.1", 9100, False),
        ("10.0.0.7", 9100, False),
    ],
)
def test_metrics_on_all_addresses_are_logged_as_a_warning(
    host: str, port: int | None, is_warned: bool
) -> None:
    """Metrics have no password."""
    with capture_logs() as logs:
        warn_of_public_metrics(host, port)

    assert [line["event"] for line in logs] == ["metrics.public"] * is_warned


@pytest.mark.parametrize(
    ("networks", "is_warned"),
    [(["0.0.0.0/0"], True), (["10.0.0.0/8", "::/0"], True), (["10.0.0.0/8"], False), ([], False)],
)
def test_proxies_that_include_everyone_are_logged_as_a_warning(
    networks: list[str], is_warned: bool
) -> None:
    """Each client could then choose the address that its limits apply to."""
    with capture_logs() as logs:
        warn_of_trusted_proxies("API", networks)

    assert ["CHAT_API_TRUSTED_PROXIES" in line["fix"] for line in logs] == [True] * is_warned
