"""The document that operators read names what the code spells."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.warm import tables

DOCUMENT = Path(__file__).parents[3] / "docs" / "data-model.md"
FIELDS = {
    name
    for owner in (
        tables.MessageField,
        tables.SessionField,
        tables.SocialField,
        tables.DirectoryField,
        tables.FileField,
        tables.JobField,
        tables.PushField,
    )
    for constant, name in vars(owner).items()
    if constant.isupper()
}
INDEXES = {index.name for table in tables.TABLES for index in table.indexes}


@pytest.mark.parametrize("name", sorted(FIELDS | INDEXES | {t.name for t in tables.TABLES}))
def test_data_model_document_names_every_table_index_and_attribute(name: str) -> None:
    """What is stored is documented, down to the attribute."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## DynamoDB")[2]

    assert f"`{name}`" in section
