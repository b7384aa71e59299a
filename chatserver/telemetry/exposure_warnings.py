"""Warnings at the start of a process about settings that expose more than intended."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from chatserver.domain.client_addresses import parse_address, parse_networks

log = structlog.get_logger()


def warn_of_public_metrics(host: str, port: int | None) -> None:
    """Log a warning if the metrics, which have no password, are served on all addresses."""
    address = parse_address(host)
    if port is not None and address is not None and address.is_unspecified:
        fix = "keep this port unreachable from outside, or set CHAT_TELEMETRY_METRICS_HOST"
        log.warning("metrics.public", address=host, fix=fix)


def warn_of_trusted_proxies(section: str, networks: Sequence[str]) -> None:
    """Log a warning if every client is a trusted proxy, and so chooses its own address."""
    everyone = [str(network) for network in parse_networks(networks) if network.prefixlen == 0]
    if everyone:
        fix = f"list only your proxies in CHAT_{section}_TRUSTED_PROXIES"
        log.warning("proxies.everyone_trusted", networks=everyone, fix=fix)
