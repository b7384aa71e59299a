"""Settings of the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chatserver.config.section import Section


class Archive(Section):
    """Archive: moving old messages from DynamoDB to S3, and reading them."""

    retention_s: int = Field(
        0,
        ge=0,
        description="Age at which messages move to S3; 0: never; archived messages stay readable",
    )
    sweep_interval_s: float = Field(
        3600.0, gt=0, description="Time between two sweeps for messages to archive"
    )
    wait_s: int = Field(
        86_400,
        ge=0,
        description="How long messages older than `retention_s` wait to be archived if the segment "
        "would have fewer than `segment_entries_min`",
    )
    segment_entries_min: int = Field(
        200,
        ge=1,
        le=10_000,
        description="Minimum messages per segment, except after `wait_s`; a smaller segment is "
        "extended later",
    )
    segment_entries_max: int = Field(
        1000, ge=1, le=10_000, description="Maximum messages per segment"
    )
    cache_bytes_max: int = Field(
        67_108_864, ge=1, description="Memory for cached segments, per process"
    )
    removal: Literal["worker", "ttl"] = Field(
        "worker", description="What deletes archived messages from DynamoDB: the worker, or TTL"
    )
    ttl_margin_s: int = Field(
        172_800,
        ge=0,
        description="Time between when a message becomes eligible for archiving and when its "
        "TTL expires",
    )
    ttl_sweep: bool = Field(
        False,
        description="Let the worker delete expired items, if the DynamoDB server does not "
        "support TTL",
    )

    def find_conflicts(self) -> Iterator[str]:
        latest_s = self.wait_s + 2 * self.sweep_interval_s
        if self.removal == "ttl" and self.retention_s and self.ttl_margin_s <= latest_s:
            yield "ttl_margin_s: must be more than wait_s + 2 * sweep_interval_s"
        if self.segment_entries_min > self.segment_entries_max:
            yield "segment_entries_min: must be at most segment_entries_max"
