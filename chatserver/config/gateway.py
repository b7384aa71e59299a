"""Settings of the WebSocket gateway: connections, presence and chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chatserver.config.section import Network, Section
from chatserver.config.urls import Origin
from chatserver.domain.page_limits import ITEMS_MAX, PageBounds
from chatserver.domain.text_validation import BODY_BYTES_MAX, BODY_CHARS_MAX, BODY_TOP, BodyBounds


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


class Presence(Section):
    """Presence of users."""

    away_after_s: float = Field(
        300.0, gt=0, description="A device that is idle for longer counts as away"
    )
    offline_grace_s: float = Field(
        10.0, ge=0, le=300, description="A device that reconnects within this time stays online"
    )


class Chats(Section):
    """Messages, groups and direct chats."""

    body_chars_max: int = Field(
        BODY_CHARS_MAX, ge=1, le=BODY_TOP, description="Maximum characters per message"
    )
    body_bytes_max: int = Field(
        BODY_BYTES_MAX, ge=4, le=BODY_TOP, description="Maximum UTF-8 bytes per message"
    )
    fanout_members_max: int = Field(
        256,
        ge=2,
        le=10_000,
        description="Maximum members of a chat whose messages are written to inboxes; a chat with "
        "more members is a large chat",
    )
    per_user_max: int = Field(
        2_000,
        ge=1,
        le=2_000,
        description="Maximum groups per user, and also maximum direct chats per user",
    )
    new_contacts_per_day: int = Field(
        50, ge=1, description="Maximum direct chats that a user may start with strangers per day"
    )
    invitations: Literal["ask_strangers", "always", "never"] = Field(
        "ask_strangers",
        description="When users must consent to being added to a group: "
        "if a stranger adds them, always, or never",
    )

    @property
    def request_bytes_max(self) -> int:
        """The maximum size in bytes of a request or frame: enough for the longest body.

        In JSON, a two-byte character can take six bytes.
        """
        return max(65_536, 3 * self.body_bytes_max + 8_192)

    @property
    def body_bounds(self) -> BodyBounds:
        """The maximum length of a message body."""
        return BodyBounds(self.body_chars_max, self.body_bytes_max)

    @property
    def page_bounds(self) -> PageBounds:
        """The maximum size of one page."""
        return PageBounds(ITEMS_MAX)
