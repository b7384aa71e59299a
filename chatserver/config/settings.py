"""All settings of a process, by section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

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
from chatserver.config.storage import Cold, Encryption, Redis, Warm
from chatserver.config.workers import Archive, Audit, Persist, Telemetry
from chatserver.domain.text_validation import BODY_BYTES_MAX


class Settings(BaseModel):
    """All settings of a process; without arguments, the defaults. `loading` reads the sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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

    def find_conflicts(self) -> Iterator[str]:
        """Return the problems of this combination of sections, each naming the settings."""
        wanted = self.chats.request_bytes_max
        if self.gateway.frame_bytes_max < wanted and self.chats.body_bytes_max > BODY_BYTES_MAX:
            yield (
                f"gateway.frame_bytes_max: must be at least {wanted}, so that a message of "
                f"chats.body_bytes_max ({self.chats.body_bytes_max}) fits into a frame"
            )
        if self.encryption.provider != "none" and self.analytics.has_texts:
            yield "analytics.export: must not be texts if encryption.provider is set"

    @model_validator(mode="after")
    def _set_tenant(self) -> Self:
        # All tiers use the tenant of `warm`, so that their tenants cannot differ.
        self.__dict__["cold"] = self.cold.for_tenant(self.warm.tenant)
        self.__dict__["redis"] = self.redis.for_tenant(self.warm.tenant)
        return self

    @model_validator(mode="after")
    def _set_encryption(self) -> Self:
        # Each DynamoDB client gets the encryption settings, so that none bypasses encryption.
        self.__dict__["warm"] = self.warm.with_encryption(self.encryption)
        return self
