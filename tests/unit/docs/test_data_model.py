"""The data model document, compared with the code."""

from __future__ import annotations

import re
from pathlib import Path

from chatserver.domain.access.tenants import RESERVED_TENANTS

DATA_MODEL = Path(__file__).parents[3] / "docs" / "data-model.md"


def test_first_component_of_each_object_key_is_a_reserved_tenant_name() -> None:
    """A tenant with such a name would share its objects with a deployment without a tenant."""
    section = DATA_MODEL.read_text("utf-8").split("\n## S3\n")[1]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    first_components = set(re.findall(r"`(\w+)/", " ".join(rows)))

    assert first_components == RESERVED_TENANTS
