"""A demo login requires a program or the server's own page on this machine."""

from __future__ import annotations

import pytest

from chatserver.errors import Forbidden
from chatserver.features.accounts.demo_login_routes import check_is_direct, check_is_local


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example", None),
        ("evil.example:8080", "http://evil.example:8080"),
        ("127.0.0.1.evil.example:8080", None),
        ("", None),
        ("127.0.0.1:8080", "http://evil.example"),
        ("127.0.0.1:8080", "http://127.0.0.1:9999"),
        ("127.0.0.1:8080", "https://127.0.0.1:8080"),
        ("127.0.0.1:8080", "null"),
        ("127.0.0.1:8080", ""),
    ],
)
def test_demo_login_from_another_site_is_forbidden(host: str, origin: str | None) -> None:
    """A page of another site gets no token, under any host name."""
    with pytest.raises(Forbidden):
        check_is_local(host, origin)


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.1", {}),
        ("", {}),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}),
        ("::1", {"forwarded": "for=127.0.0.1"}),
        ("127.0.0.1", {"via": "1.1 proxy"}),
    ],
)
def test_demo_login_from_another_machine_or_through_a_proxy_is_forbidden(
    peer: str, headers: dict[str, str]
) -> None:
    """A Host header proves nothing: the connection itself must come from this machine."""
    with pytest.raises(Forbidden):
        check_is_direct(peer, headers)


def test_demo_login_from_this_machine_is_allowed() -> None:
    """Programs and browsers on this machine connect without a proxy."""
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        check_is_direct(peer, {"host": "localhost:8080"})


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", None),
        ("localhost:8080", "http://localhost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_demo_login_from_the_servers_page_or_a_program_is_allowed(
    host: str, origin: str | None
) -> None:
    """The server's page has the server's origin; a terminal client has none."""
    check_is_local(host, origin)
