"""Every response in these tests has a status that the OpenAPI document declares."""

from __future__ import annotations

from tests.support.declared_statuses import declared_statuses

__all__ = ["declared_statuses"]
