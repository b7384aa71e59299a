"""Settings of the three tiers: Redis, DynamoDB and S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from chatserver.config.section import Section, TenantSection
from chatserver.config.urls import CorsOrigin, HttpUrl, RedisUrl
from chatserver.domain.access.tenants import RESERVED_TENANTS, TENANT_PATTERN
from chatserver.domain.write_sharding import SHARDS_MAX, is_shards


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
        description="Maximum unpersisted messages per partition; at the limit, sends are refused",
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


class Encryption(Section):
    """Client-side encryption of bodies in DynamoDB and S3. Use the same values in all processes."""

    provider: Literal["none", "file", "kms"] = Field(
        "none",
        description="What encrypts the data keys: a key file (`file`) or AWS KMS (`kms`); "
        "`none`: no encryption",
    )
    key_file: Path | None = Field(
        None,
        description="Key file; required for the provider `file`, and to decrypt data keys that it "
        "encrypted earlier",
    )
    kms_key_id: str = Field(
        "",
        description="ARN or alias of the KMS key for the provider `kms`; the server calls KMS with "
        "the region and credentials of `warm`",
    )
    cache_s: float = Field(
        300.0, ge=1, le=3600, description="How long a process caches a decrypted data key"
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.provider == "file" and self.key_file is None:
            yield "key_file: must be set if provider is file"
        if self.provider == "kms" and not self.kms_key_id:
            yield "kms_key_id: must be set if provider is kms"


class Warm(Section):
    """DynamoDB, the warm tier."""

    _encryption: Encryption = PrivateAttr(default_factory=Encryption)

    endpoint: HttpUrl | None = Field(None, description="Address of DynamoDB; unset: AWS")
    streams_endpoint: HttpUrl | None = Field(
        None, description="Address of DynamoDB Streams; unset: `endpoint`"
    )
    region: str = Field("us-east-1", description="AWS region")
    access_key: str | None = Field(
        None, description="AWS access key; unset: the default AWS credential chain"
    )
    secret_key: SecretStr | None = Field(
        None, description="AWS secret key that belongs to `access_key`"
    )
    table_prefix: str = Field(
        "chat_", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="Prefix of every table name"
    )
    tenant: str = Field(
        "",
        pattern=rf"^({TENANT_PATTERN})?$",
        description="Name of this deployment, if several share the tables and the bucket",
    )
    billing: Literal["on_demand", "provisioned"] = Field(
        "on_demand", description="Billing mode of new tables"
    )
    read_units: int = Field(100, ge=1, description="Read capacity units of each provisioned table")
    write_units: int = Field(
        100, ge=1, description="Write capacity units of each provisioned table"
    )
    stream: bool = Field(
        False, description="Enable DynamoDB Streams; required by `archive.removal = ttl`"
    )
    call_timeout_s: float = Field(5.0, gt=0, description="Timeout for each call, including retries")
    body_inline_bytes_max: int = Field(
        32_768, ge=256, le=262_144, description="Longer message bodies are stored in S3"
    )
    schema_version: int | None = Field(
        None,
        ge=1,
        description="Schema version that the processes use; unset: the newest of their release",
    )
    shard_writes_per_s: int = Field(
        500,
        ge=0,
        description="Write units per second on one DynamoDB partition above which a chat is "
        "sharded; 0: never",
    )
    shards_max: int = Field(
        16, ge=2, le=SHARDS_MAX, description="Maximum shards per chat; must be a power of two"
    )

    @field_validator("tenant")
    @classmethod
    def _check_tenant(cls, tenant: str) -> str:
        if tenant in RESERVED_TENANTS:  # S3 key prefixes in deployments without tenants
            raise ValueError(f"{tenant} is reserved; choose another name")
        return tenant

    @property
    def encryption(self) -> Encryption:
        """The settings of section `encryption`."""
        return self._encryption

    def with_encryption(self, encryption: Encryption) -> Self:
        """Return a copy with these encryption settings."""
        copy = self.model_copy()
        copy._encryption = encryption
        return copy

    @field_validator("shards_max")
    @classmethod
    def _check_shards(cls, shards: int) -> int:
        if not is_shards(shards):
            raise ValueError("must be a power of two")
        return shards


class Cold(TenantSection):
    """S3, the cold tier."""

    endpoint: HttpUrl | None = Field(None, description="Address of S3; unset: AWS")
    public_endpoint: HttpUrl | None = Field(
        None, description="Address of S3 for clients, if it differs from `endpoint`"
    )
    region: str = Field("us-east-1", description="AWS region")
    bucket: str = Field(
        "chatserver",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="Bucket for the archive, attachments, long messages and exports",
    )
    access_key: str | None = Field(
        None, description="AWS access key; unset: the default AWS credential chain"
    )
    secret_key: SecretStr | None = Field(
        None, description="AWS secret key that belongs to `access_key`"
    )
    origins: list[CorsOrigin] = Field(
        default_factory=list,
        description="Web origins that may upload to and download from the bucket",
    )
    call_timeout_s: float = Field(
        10.0, gt=0, description="Timeout for each call, including retries"
    )

    @property
    def client_urls(self) -> list[str]:
        """The base URLs at which clients reach the bucket."""
        if url := self.public_endpoint or self.endpoint:
            return [url]
        # Presigned URLs can have the regional or the global host, so return both.
        hosts = (f"s3.{self.region}.amazonaws.com", "s3.amazonaws.com")
        return [f"https://{self.bucket}.{host}" for host in hosts]
