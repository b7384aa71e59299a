"""Tenant names."""

from __future__ import annotations

import pytest

from chatserver.domain.access.tenants import RESERVED_TENANTS, parse_tenant
from chatserver.errors import BadRequest


@pytest.mark.parametrize("name", sorted(RESERVED_TENANTS))
def test_reserved_tenant_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="is a reserved name; choose another one"):
        parse_tenant(name)
