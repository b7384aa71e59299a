"""docs/audit.md lists every setting of the audit with its default, and every finding."""

from __future__ import annotations

import re
from pathlib import Path

from chatserver.config import Audit
from chatserver.operations.audit.model import KINDS
from chatserver.telemetry import metrics

TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_audit_document_has_each_setting_with_its_default() -> None:
    """The document shows the current defaults."""
    rows = re.findall(r"^\| `CHAT_AUDIT_(\w+)` \| ([\d.]+) \|", TEXT, re.MULTILINE)

    settings = Audit()
    assert {name.lower(): float(value) for name, value in rows} == {
        name: float(getattr(settings, name)) for name in Audit.model_fields
    }


def test_audit_document_has_each_finding_of_the_command() -> None:
    """Each row has category, kind, meaning and advice."""
    rows = re.findall(r"^\| (\w+): `(\w+)` \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)

    assert {kind: (category, meaning, advice) for category, kind, meaning, advice in rows} == KINDS


def test_audit_document_has_each_metric() -> None:
    """Alerts use these names."""
    counters = [each.describe()[0].name for each in metrics.AUDIT_FINDINGS.values()]
    for name in [f"{counter}_total" for counter in counters] + ["chat_audit_round_time_seconds"]:
        assert f"`{name}" in TEXT
