"""Settings of the features."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from chatserver.config.section import Section


class Attachments(Section):
    """File attachments."""

    size_bytes_max: int = Field(
        26_214_400, ge=1, le=1_073_741_824, description="Maximum size of a file"
    )
    waiting_bytes_max: int = Field(
        209_715_200, ge=1, description="Maximum bytes of a user's unsent files"
    )


class Webhooks(Section):
    """Webhooks to the host application: before-send and events."""

    secret: SecretStr = Field(
        SecretStr(""), description="Signing key of at least 32 bytes; required with a URL"
    )
    before_send_url: str | None = Field(
        None, description="URL called before each message is accepted; unset: disabled"
    )
    before_send_timeout_s: float = Field(
        1.0, gt=0, le=10, description="Timeout of one before-send request"
    )
    before_send_policy: Literal["open", "closed"] = Field(
        "open", description="If the request fails, accept (open) or refuse (closed) the message"
    )
    events_url: str | None = Field(
        None, description="URL that receives events; unset: no events are sent"
    )
    timeout_s: float = Field(5.0, gt=0, le=30, description="Timeout of one event request")

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        has_url = self.before_send_url is not None or self.events_url is not None
        if has_url and len(self.secret.get_secret_value().encode()) < 32:
            raise ValueError("secret must be at least 32 bytes; try: openssl rand -hex 32")
        return self


class Notify(Section):
    """Push notifications. Disabled without a VAPID, FCM or APNs key."""

    delay_s: float = Field(
        3.0, ge=0, le=300, description="A message that is read within this time is not pushed"
    )
    preview: bool = Field(True, description="Pushes contain the beginning of the message")
    large: Literal["mentions", "none"] = Field(
        "mentions", description="Which members of a large chat get a push"
    )
    vapid_public: str = Field("", description="Public key for browsers, from `chatserver vapid`")
    vapid_private: SecretStr = Field(SecretStr(""), description="Private key of the push worker")
    subject: str = Field("", description="Operator's mailto: or https: address for push services")
    fcm_account: SecretStr = Field(
        SecretStr(""), description="JSON of the Google service account for FCM"
    )
    apns_key: SecretStr = Field(
        SecretStr(""), description="Content of the .p8 key for APNs; unset: FCM sends iOS pushes"
    )
    apns_key_id: str = Field("", description="Key id of `apns_key`")
    apns_team_id: str = Field("", description="Apple team id of `apns_key`")
    apns_topic: str = Field("", description="Bundle id of the application")
    apns_url: str = Field(
        "https://api.push.apple.com",
        description="Address of APNs; development builds: https://api.sandbox.push.apple.com",
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
    memory_days: int = Field(
        365,
        ge=1,
        le=3650,
        description="Time after which a companion forgets a fact that is not updated",
    )
    openai_url: str = Field(
        "https://api.openai.com/v1",
        pattern=r"^https?://",
        description="URL of the OpenAI API or a compatible API, such as vLLM or Ollama",
    )
    openai_key: SecretStr = Field(SecretStr(""), description="Key of the OpenAI API")
    bedrock_region: str = Field(
        "us-east-1", description="AWS region of Amazon Bedrock; uses the AWS credential chain"
    )


class Privacy(Section):
    """Data exports and erasure of user data."""

    export_days: int = Field(7, ge=1, le=30, description="Time for which an export is available")


class Analytics(Section):
    """Export of messages as Parquet files; the same in all workers."""

    export: Literal["", "metadata", "texts"] = Field(
        "",
        description="What `worker all` exports: `metadata`, or `texts` for metadata and message "
        "text; unset: nothing; `worker analytics` and `analytics export` then export metadata",
    )

    @property
    def has_texts(self) -> bool:
        """True if the files contain message text."""
        return self.export == "texts"


class Search(Section):
    """Full-text search; the same in all processes."""

    index: str = Field(
        "",
        description="Folder of the index, shared by `worker search` and the API on one machine; "
        "`s3`: in the bucket, for any number of machines (extra `search`); unset: no search",
    )


class Timeline(Section):
    """Delivery of posts to timelines."""

    fanout_followers_max: int = Field(
        10_000, ge=0, description="Posts of authors with more followers are merged on read"
    )
    days: int = Field(30, ge=1, le=3650, description="Time for which a post stays in timelines")
