"""Settings of the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SecretStr

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl


class Attachments(Section):
    """File attachments."""

    size_bytes_max: int = Field(
        26_214_400, ge=1, le=1_073_741_824, description="Maximum size of a file"
    )
    day_bytes_max: int = Field(
        1_073_741_824,
        ge=1,
        description="Maximum bytes of files that a user uploads within a day",
    )
    user_bytes_max: int = Field(
        10_737_418_240,
        ge=1,
        description="Maximum total bytes of a user's files, excluding deleted files",
    )


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


class Notify(Section):
    """Push notifications. Disabled without a VAPID, FCM or APNs key."""

    delay_s: float = Field(
        3.0, ge=0, le=300, description="A message that is read within this time is not pushed"
    )
    preview: bool = Field(True, description="Include the beginning of the message in pushes")
    large: Literal["mentions", "none"] = Field(
        "mentions",
        description="Which members of a large chat get pushes: mentioned members, or none",
    )
    vapid_public: str = Field(
        "", description="VAPID public key, from `chatserver vapid`; sent to browsers"
    )
    vapid_private: SecretStr = Field(
        SecretStr(""),
        description="VAPID private key, from `chatserver vapid`; only workers need it",
    )
    subject: str = Field(
        "",
        description="mailto: or https: address at which push services can contact the operator",
    )
    fcm_account: SecretStr = Field(
        SecretStr(""), description="Google service account for FCM, as JSON"
    )
    apns_key: SecretStr = Field(
        SecretStr(""),
        description="Contents of the .p8 key file for APNs; unset: iOS pushes are sent through FCM",
    )
    apns_key_id: str = Field("", description="Key id of `apns_key`")
    apns_team_id: str = Field("", description="Apple team id of `apns_key`")
    apns_topic: str = Field("", description="Bundle id of the application")
    apns_url: HttpUrl = Field(
        "https://api.push.apple.com",
        description="URL of APNs; for development builds, https://api.sandbox.push.apple.com",
    )


class Companions(Section):
    """AI companion responses."""

    responses_per_user_max: int = Field(
        3, ge=1, le=100, description="Maximum concurrent responses per user"
    )
    responses_max: int = Field(
        256, ge=1, le=4096, description="Maximum concurrent responses per worker"
    )
    tokens_per_day: int = Field(
        200_000, ge=1, description="Maximum model tokens per user and UTC day, including prompts"
    )
    openai_url: HttpUrl = Field(
        "https://api.openai.com/v1",
        description="URL of the OpenAI API or a compatible API, such as vLLM or Ollama",
    )
    openai_key: SecretStr = Field(SecretStr(""), description="API key for `openai_url`")
    bedrock_region: str = Field(
        "us-east-1",
        description="AWS region for Amazon Bedrock; credentials are taken from the AWS "
        "credential chain",
    )


class Privacy(Section):
    """Data exports and erasure of user data."""

    export_days: int = Field(
        7, ge=1, le=30, description="Days for which a data export can be downloaded"
    )


class Analytics(Section):
    """Export of messages as Parquet files. Use the same values in all workers."""

    export: Literal["", "metadata", "texts"] = Field(
        "",
        description="`metadata`: export metadata only; `texts`: also export message text. If "
        "unset, `worker all` exports nothing, while `worker analytics` and "
        "`analytics export` export metadata",
    )

    @property
    def has_texts(self) -> bool:
        """True if the files contain message text."""
        return self.export == "texts"


class Search(Section):
    """Full-text search. Use the same values in all processes."""

    index: str = Field(
        "",
        description="Folder of the index, if `worker search` and the API run on one machine; "
        "`s3`: keep the index in the bucket, for any number of machines (requires "
        "the `search` extra); unset: no search",
    )


class Timeline(Section):
    """Delivery of posts to timelines."""

    fanout_followers_max: int = Field(
        10_000,
        ge=0,
        description="Posts by authors with more followers are not written to timelines, but "
        "merged on read",
    )
    days: int = Field(30, ge=1, le=3650, description="Days for which a post stays in timelines")
