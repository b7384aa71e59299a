"""Settings of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from chatserver.config.section import Network, Section, is_loopback
from chatserver.config.urls import WebSocketUrl


class Api(Section):
    """HTTP API processes."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8080, ge=0, le=65_535, description="Port to listen on")
    gateway_url: WebSocketUrl = Field(
        "ws://127.0.0.1:8081/", description="Gateway URL to which the web client connects"
    )
    demo_users: list[str] = Field(
        default_factory=list, description="Users with one-click login; for `chatserver dev` only"
    )
    trusted_proxies: list[Network] = Field(
        default_factory=list,
        description="Proxy addresses and ranges whose X-Forwarded-For and -Proto are trusted",
    )
    connections_max: int = Field(
        2000,
        ge=16,
        description="Maximum connections per process; at the limit, the server closes an idle or "
        "slow connection for each new one",
    )
    idle_timeout_s: float = Field(
        75.0,
        gt=0,
        le=3600,
        description="Idle connections are closed after this time; must exceed the load "
        "balancer's idle timeout",
    )
    tls_in_front: bool = Field(
        False,
        description="Assume that clients use HTTPS, even if the proxy sends no X-Forwarded-Proto",
    )
    hsts_s: int = Field(
        31_536_000, ge=0, description="max-age of Strict-Transport-Security; 0: not sent"
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.demo_users and self.trusted_proxies:
            yield "demo_users log in without a password: trusted_proxies must be empty"
        if self.demo_users and not is_loopback(self.host):
            yield "demo_users log in without a password: host must be a loopback address"
