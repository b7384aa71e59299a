"""Settings of webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SecretStr

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl


class Webhooks(Section):
    """Webhooks to the host application: before-send and events."""

    secret: SecretStr = Field(
        SecretStr(""),
        description="Signing key of at least 32 bytes; required if a webhook URL is set",
    )
    before_send_url: HttpUrl | None = Field(
        None, description="URL called before each message is accepted; unset: disabled"
    )
    before_send_timeout_s: float = Field(
        1.0, gt=0, le=10, description="Timeout for each before-send request"
    )
    before_send_policy: Literal["open", "closed"] = Field(
        "open",
        description="If the before-send request fails, accept (`open`) or refuse (`closed`) the"
        " message",
    )
    events_url: HttpUrl | None = Field(
        None, description="URL that receives events; unset: no events are sent"
    )
    timeout_s: float = Field(
        5.0, gt=0, le=30, description="Timeout for each request to `events_url`"
    )

    def find_conflicts(self) -> Iterator[str]:
        has_url = self.before_send_url is not None or self.events_url is not None
        if has_url and len(self.secret.get_secret_value().encode()) < 32:
            yield "secret must be at least 32 bytes; try: openssl rand -hex 32"
