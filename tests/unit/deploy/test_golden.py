"""The rendered chart, Compose file and Terraform plan equal the reviewed ones."""

from __future__ import annotations

from tests.support.deployments import GOLDEN, golden_files


def test_what_deploy_renders_to_is_what_was_looked_at() -> None:
    """A change of a template is seen in what it changes.

    When this fails: make golden, and read the difference.
    """
    rendered = golden_files()

    assert {file.name for file in GOLDEN.iterdir()} == rendered.keys()
    changed = [
        name
        for name, text in rendered.items()
        if (GOLDEN / name).read_text(encoding="utf-8") != text
    ]
    assert not changed, f"{changed}: make golden"
