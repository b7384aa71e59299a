"""Settings of outbound HTTP requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from chatserver.config.section import Network, Section


class Outbound(Section):
    """Outbound HTTP requests: webhooks, push services and key sets of token issuers."""

    allow_private: list[Network] = Field(
        default_factory=list,
        description="Private addresses and ranges to which the server may send requests",
    )
    ports: list[Annotated[int, Field(ge=1, le=65_535)]] = Field(
        default_factory=lambda: [443],
        description="Ports to which the server may send requests at public addresses; port 80 "
        "uses plain HTTP",
    )
