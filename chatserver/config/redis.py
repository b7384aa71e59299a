"""Settings of Redis, the hot tier."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import Field

from chatserver.config.section import TenantSection
from chatserver.config.urls import RedisUrl


class Redis(TenantSection):
    """Redis, the hot tier. It contains only the data of the tenant in `warm.tenant`."""

    url: RedisUrl = Field(
        "redis://127.0.0.1:6379/0",
        description="Address of Redis 7 or Valkey: `redis://user:password@host:port/database`, "
        "with special characters in the password percent-encoded; `rediss://` for TLS, with the "
        "options `?ssl_ca_certs=FILE` for a private CA, and `ssl_certfile` and `ssl_keyfile` for "
        "a client certificate; `unix://path`",
    )
    cluster: bool = Field(False, description="Use Redis Cluster; `url` is any of its nodes")
    sentinels: list[RedisUrl] = Field(
        default_factory=list,
        description="Sentinels to ask for the master, each as redis://host:26379; `url` has the"
        " master's credentials",
    )
    sentinel_master: str = Field(
        "mymaster", description="Name by which the Sentinels know the master"
    )
    partitions: int = Field(
        1,
        ge=1,
        le=1024,
        description="Number of Redis partitions, which cannot change after the first start; use"
        " at least 64 for a cluster",
    )
    wait_replicas: int = Field(
        0,
        ge=0,
        le=5,
        description="Number of replicas that must have a message before it is acknowledged, unless"
        " DynamoDB has it; each master needs at least one replica more than this number",
    )
    wait_fsync: bool = Field(
        False,
        description="Acknowledge a message only after Redis has synced it to disk; requires "
        "Redis 7.2 or Valkey",
    )
    call_timeout_s: float = Field(
        2.0, gt=0, le=60, description="Timeout for each call, and for opening a connection"
    )
    backlog_max: int = Field(
        2_000_000,
        ge=1000,
        description="Maximum unpersisted commits per partition (about one message each, more under "
        "load); at the limit, sends are refused",
    )
    inbox_max: int = Field(1000, ge=10, description="Maximum events kept in a user's inbox")
    log_max: int = Field(
        1000, ge=10, description="Maximum persisted messages kept in Redis per chat"
    )
    chat_idle_s: int = Field(
        604_800,
        ge=1,
        description="A chat that is unused for this time is removed from Redis, if all its "
        "messages are persisted",
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.log_max < self.inbox_max:  # an inbox can refer to `inbox_max` entries of one chat
            yield "log_max must be at least inbox_max"
        if self.sentinels and (self.cluster or self.url.startswith("unix:")):
            yield "sentinels cannot be combined with cluster or with a unix: url"
        if self.cluster and urlsplit(self.url).path not in ("", "/", "/0"):
            yield "cluster requires a url with a host and database 0"
