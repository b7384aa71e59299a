"""The rendered chart, Compose file and Terraform plan equal the golden files."""

from __future__ import annotations

from tests.support.deployments import GOLDEN, golden_files


def test_rendered_deployments_equal_the_golden_files() -> None:
    """The diff of a golden file shows the effect of a template change.

    When this fails: make golden, and review the diff.
    """
    rendered = golden_files()

    assert {file.name for file in GOLDEN.iterdir()} == rendered.keys()
    changed = [
        name
        for name, text in rendered.items()
        if (GOLDEN / name).read_text(encoding="utf-8") != text
    ]
    assert not changed, f"{changed}: make golden"
