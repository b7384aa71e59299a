"""Settings of DynamoDB, the warm tier."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from chatserver.config.encryption import Encryption
from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl
from chatserver.domain.access.tenants import RESERVED_TENANTS, TENANT_PATTERN
from chatserver.domain.write_sharding import SHARDS_MAX, is_shards


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
