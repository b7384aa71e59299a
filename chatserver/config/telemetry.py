"""Settings of logs, metrics and traces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl


class Telemetry(Section):
    """Logs, metrics and traces."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged"
    )
    format: Literal["json", "console"] = Field(
        "json", description="One JSON object per line, or human-readable text"
    )
    metrics_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Port for /metrics, /healthz and /readyz; unset: not served",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="Address on which metrics are served; must not be reachable by clients",
    )
    traces: Literal["off", "otlp"] = Field(
        "off",
        description="`otlp`: send traces of messages by OTLP over HTTP; requires the `otel` extra",
    )
    traces_endpoint: HttpUrl = Field(
        "http://127.0.0.1:4318/v1/traces", description="Full URL of the OTLP collector"
    )
    traces_sample: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of messages that are traced; all processes trace the same messages",
    )
