"""docs/evolution.md quotes the worked examples that the tests run."""

from __future__ import annotations

import re

from tests.unit.docs.markdown import ROOT

EXAMPLES = ROOT / "tests" / "integration" / "warm" / "schema" / "examples"


def test_evolution_document_quotes_the_tested_examples() -> None:
    """Developers copy this code, so it must be the tested code."""
    text = (ROOT / "docs" / "evolution.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py"))
    tests = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES.parent.glob("test_*.py"))

    quotes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    mentioned = re.findall(r"`(test_\w+)`", text)

    assert len(quotes) >= 6
    assert all(quote in source for quote in quotes)
    assert len(mentioned) >= 7
    assert all(f"def {name}(" in tests for name in mentioned)
