"""All settings of a process, by section.

A feature has a section if its folder has a module `settings` with a subclass of `Section`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Any, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, model_validator

from chatserver.config.api import Api
from chatserver.config.archive import Archive
from chatserver.config.audit import Audit
from chatserver.config.auth import Auth
from chatserver.config.chats import Chats
from chatserver.config.cold import Cold
from chatserver.config.encryption import Encryption
from chatserver.config.gateway import Gateway
from chatserver.config.outbound import Outbound
from chatserver.config.persist import Persist
from chatserver.config.presence import Presence
from chatserver.config.rate_limits import Limits
from chatserver.config.redis import Redis
from chatserver.config.section import Section
from chatserver.config.telemetry import Telemetry
from chatserver.config.warm import Warm
from chatserver.domain.text_validation import BODY_BYTES_MAX
from chatserver.feature_modules import iter_feature_modules

S = TypeVar("S", bound=Section)


class Settings(BaseModel):
    """All settings of a process; without arguments, the defaults. `loading` reads the sources."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Section]

    redis: Redis = Redis()
    gateway: Gateway = Gateway()
    chats: Chats = Chats()
    presence: Presence = Presence()
    limits: Limits = Limits()
    warm: Warm = Warm()
    cold: Cold = Cold()
    encryption: Encryption = Encryption()
    auth: Auth = Auth()
    api: Api = Api()
    outbound: Outbound = Outbound()
    persist: Persist = Persist()
    archive: Archive = Archive()
    audit: Audit = Audit()
    telemetry: Telemetry = Telemetry()

    @property
    def features(self) -> Collection[Section]:
        """The sections of the installed features."""
        return self.__pydantic_extra__.values()

    def get(self, section_type: type[S]) -> S:
        """Return the section of a feature."""
        return cast(S, self.__pydantic_extra__[section_type.__name__.lower()])

    def find_conflicts(self) -> Iterator[str]:
        """Return the problems of this combination of sections, each naming the settings."""
        needed = self.chats.request_bytes_max
        if self.gateway.frame_bytes_max < needed and self.chats.body_bytes_max > BODY_BYTES_MAX:
            yield (
                f"gateway.frame_bytes_max: must be at least {needed}, so that a message of "
                f"chats.body_bytes_max ({self.chats.body_bytes_max}) fits into a frame"
            )
        if self.encryption.provider != "none":
            for section in self.features:
                yield from section.find_encryption_conflicts()

    @model_validator(mode="before")
    @classmethod
    def _add_features(cls, sections: dict[str, Any]) -> dict[str, Any]:
        types = list_sections()
        if unknown := sections.keys() - types.keys():
            raise ValueError(f"no such section: {', '.join(sorted(unknown))}")
        return sections | {
            name: kind.model_validate(sections.get(name, {}))
            for name, kind in types.items()
            if name not in cls.model_fields
        }

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


@functools.cache
def list_sections() -> dict[str, type[Section]]:
    """Return the type of each section, by name: first those of the core."""
    core = {name: cast(type[Section], f.annotation) for name, f in Settings.model_fields.items()}
    return core | {
        value.__name__.lower(): value
        for module in iter_feature_modules("settings")
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__ and issubclass(value, Section)
    }
