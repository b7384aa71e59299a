"""Base class of settings sections, and checks that several sections share."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Self, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)


class Section(BaseModel):
    """Base class of settings sections; rejects unknown settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _parse_list(cls, value: object, info: ValidationInfo) -> object:
        """Parse a list from JSON text: environment variables and secret files contain only text."""
        field = cls.model_fields[str(info.field_name)]
        if not isinstance(value, str) or get_origin(field.annotation) is not list:
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('must be a JSON list, for example ["one", "two"]') from None

    def find_conflicts(self) -> Iterable[str]:
        """Return the problems of this combination of values, each naming the settings."""
        return ()

    def find_encryption_conflicts(self) -> Iterable[str]:
        """Return the problems of these values if encryption is on, each naming the settings."""
        return ()

    def list_plain_texts(self) -> Iterable[tuple[str, str]]:
        """Return where texts are not encrypted although encryption is on: `(message, fix)` each."""
        return ()

    def list_needed_workers(self) -> Iterable[str]:
        """Return the workers that must run in a deployment with these settings."""
        return ()

    def get_client_config(self) -> Mapping[str, object]:
        """Return the values that clients read before they connect (`GET /v1/client-config`)."""
        return {}

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        if conflicts := list(self.find_conflicts()):
            raise ValueError("\n".join(conflicts))  # one error, because pydantic stops at the first
        return self


class TenantSection(Section):
    """Base class of sections that have a tenant, which `Settings` copies from `warm.tenant`."""

    _tenant: str = PrivateAttr("")

    @property
    def tenant(self) -> str:
        """The tenant, or an empty string."""
        return self._tenant

    def for_tenant(self, tenant: str) -> Self:
        """Return the same settings for another tenant."""
        copy = self.model_copy()
        copy._tenant = tenant
        return copy


def _check_network(text: str) -> str:
    ipaddress.ip_network(text, strict=False)  # raises ValueError if it is no address or range
    return text


Network = Annotated[str, AfterValidator(_check_network)]  # an address or a range


def is_loopback(host: str) -> bool:
    """Return whether the host name or address is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
