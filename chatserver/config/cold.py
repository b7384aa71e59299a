"""Settings of S3, the cold tier."""

from __future__ import annotations

from pydantic import Field, SecretStr

from chatserver.config.section import TenantSection
from chatserver.config.urls import CorsOrigin, HttpUrl


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
