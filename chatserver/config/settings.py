"""All settings of a process, by section."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from chatserver.config.api import Api, Auth, Outbound
from chatserver.config.features import (
    Analytics,
    Attachments,
    Companions,
    Notify,
    Privacy,
    Search,
    Timeline,
    Webhooks,
)
from chatserver.config.gateway import Chats, Gateway, Presence
from chatserver.config.rates import Limits
from chatserver.config.sources import PREFIX, open_sources
from chatserver.config.storage import Cold, Encryption, Redis, Warm
from chatserver.config.workers import Archive, Audit, Persist, Telemetry
from chatserver.domain.text_validation import BODY_BYTES_MAX


class Settings(BaseSettings):
    """All settings of a process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        enable_decoding=False,  # `Section` parses lists instead, to report clearer errors
        extra="forbid",
        frozen=True,
    )

    redis: Redis = Redis()
    gateway: Gateway = Gateway()
    chats: Chats = Chats()
    presence: Presence = Presence()
    limits: Limits = Limits()
    warm: Warm = Warm()
    cold: Cold = Cold()
    encryption: Encryption = Encryption()
    attachments: Attachments = Attachments()
    auth: Auth = Auth()
    api: Api = Api()
    outbound: Outbound = Outbound()
    webhooks: Webhooks = Webhooks()
    persist: Persist = Persist()
    archive: Archive = Archive()
    audit: Audit = Audit()
    notify: Notify = Notify()
    companions: Companions = Companions()
    privacy: Privacy = Privacy()
    analytics: Analytics = Analytics()
    search: Search = Search()
    timeline: Timeline = Timeline()
    telemetry: Telemetry = Telemetry()

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        wanted = self.chats.request_bytes_max
        if self.gateway.frame_bytes_max < wanted and self.chats.body_bytes_max > BODY_BYTES_MAX:
            raise ValueError(
                f"gateway.frame_bytes_max: must be at least {wanted}, so that a message of "
                f"chats.body_bytes_max ({self.chats.body_bytes_max}) fits into a frame"
            )
        return self

    @model_validator(mode="after")
    def _set_tenant(self) -> Self:
        # All tiers use the tenant of `warm`, so that their tenants cannot differ.
        self.__dict__["cold"] = self.cold.for_tenant(self.warm.tenant)
        self.__dict__["redis"] = self.redis.for_tenant(self.warm.tenant)
        return self

    @model_validator(mode="after")
    def _set_encryption(self) -> Self:
        if self.encryption.provider != "none" and self.analytics.has_texts:
            raise ValueError("analytics.export: must not be texts if encryption.provider is set")
        # Each DynamoDB client gets the encryption settings, so that none bypasses encryption.
        self.__dict__["warm"] = self.warm.with_encryption(self.encryption)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, secrets, file; no dotenv."""
        return open_sources(settings_cls, init_settings, env_settings)
