"""Settings of the WebSocket gateway."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from chatserver.config.section import Network, Section
from chatserver.config.urls import Origin


class Gateway(Section):
    """WebSocket gateway processes."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8081, ge=0, le=65_535, description="Port to listen on")
    origins: list[Origin] = Field(
        default_factory=list,
        description="Allowed Origin headers; if empty, only clients without an Origin header "
        "can connect",
    )
    trusted_proxies: list[Network] = Field(
        default_factory=list,
        description="Proxy addresses and ranges whose X-Forwarded-For is trusted",
    )
    frame_bytes_max: int = Field(
        65_536,
        ge=1024,
        le=1_048_576,
        description="Maximum size of a client frame; a longer frame closes the connection",
    )
    ping_interval_s: float = Field(25.0, gt=0, description="Time between pings, with jitter")
    pong_timeout_s: float = Field(
        10.0,
        gt=0,
        description="A client that does not answer a ping within this time is disconnected",
    )
    send_queue_bytes_max: int = Field(
        1_048_576,
        ge=16_384,
        description="Maximum bytes queued for a client; a slow client that exceeds this is "
        "disconnected",
    )
    sessions_per_user_max: int = Field(
        20, ge=1, description="Maximum sessions per user; one more closes the oldest"
    )
    connections_max: int = Field(
        50_000, ge=1, description="Maximum connections per process; more are refused"
    )
    online_ttl_s: float = Field(
        60.0, gt=1, description="How long users still appear online after their gateway has died"
    )
    drain_s: float = Field(
        10.0, ge=0, description="How long a stopping process waits for its clients to disconnect"
    )
    rpc_timeout_s: float = Field(
        3.0,
        gt=0,
        description="Timeout for each call to the `rpc` worker, which reads DynamoDB and S3",
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.pong_timeout_s >= self.ping_interval_s:
            yield "pong_timeout_s must be shorter than ping_interval_s"
