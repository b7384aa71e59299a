"""The entity diagram in docs/data-model.md agrees with keys, indexes and items."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from chatserver.feature_modules import iter_feature_modules
from chatserver.warm.schema import directory_attributes, tables
from chatserver.warm.schema.tables import (
    CHAT_SESSION,
    DIRECTORY,
    MESSAGES,
    SOCIAL,
    TABLES,
    TableSchema,
)
from deploy.documents.nosql_workbench_samples import samples

TEXT = (Path(__file__).parents[4] / "docs" / "data-model.md").read_text(encoding="utf-8")
ERD = TEXT.partition("```mermaid\nerDiagram\n")[2].partition("```")[0]
TABLE_OF = {
    **dict.fromkeys(
        ("USER", "LOGIN", "CHAT", "MEMBER", "FILE", "SEGMENT", "ACTIVE_DAYS"), DIRECTORY
    ),
    **dict.fromkeys(("COMPANION", "PERSONA"), DIRECTORY),
    **dict.fromkeys(("PROFILE", "FOLLOWER", "FOLLOWING", "POST"), SOCIAL),
    **dict.fromkeys(("LIKE", "LIKE_COUNT", "FAVORITE", "FAVORITE_REF", "TIMELINE_LINE"), SOCIAL),
    "MESSAGE": MESSAGES,
    **dict.fromkeys(("CHAT_SESSION", "MEMORY"), CHAT_SESSION),
}
OBJECTS = {"FILE_OBJECT", "ARCHIVE_OBJECT"}
# The generated model of the tables has sample items of these entities.
SAMPLED = ("USER", "CHAT", "MEMBER", "MESSAGE", "CHAT_SESSION", "COMPANION", "PERSONA", "PROFILE")
NAMES = {
    name
    for module in (tables, directory_attributes, *iter_feature_modules("tables"))
    for owner in vars(module).values()
    if isinstance(owner, type) and owner.__name__.endswith("Field")
    for constant, name in vars(owner).items()
    if constant.isupper()
}
_ATTRIBUTE = re.compile(r'^ +(string|number) (\w+)(?: (PK|FK))?(?: "([^"]*)")?$', re.MULTILINE)


class Attribute(NamedTuple):
    """An attribute of an entity in the diagram."""

    kind: str
    name: str
    mark: str
    comment: str

    @property
    def is_optional(self) -> bool:
        """Return whether an item can lack the attribute."""
        return bool(re.search(r"\boptional\b", self.comment))

    @property
    def forms(self) -> list[str]:
        """Return the formats of the values of a key, with ids in capitals."""
        return re.split(r", index ", self.comment)[0].split(" or ")


# Mermaid treats the word PK as a key marker everywhere.
REAL_NAMES = {"partition": "PK", "sort": "SK"}
ENTITIES = {
    name: [
        Attribute(kind, REAL_NAMES.get(attribute, attribute), mark, comment)
        for kind, attribute, mark, comment in _ATTRIBUTE.findall(body)
    ]
    for name, body in re.findall(r"^ {4}(\w+) \{\n(.*?)^ {4}\}$", ERD, re.MULTILINE | re.DOTALL)
}


def key_of(entity: str) -> dict[str, Attribute]:
    """Return the key attributes by name."""
    return {each.name: each for each in ENTITIES[entity] if each.mark == "PK"}


def matches(value: str, form: str) -> bool:
    """Return whether a key value has a format such as `m#USER`."""
    words = {"ACTIVE", "OLD"}  # these are literal
    pattern = re.sub(r"[A-Z]+", lambda word: word[0] if word[0] in words else "[^#]+", form)
    return re.fullmatch(pattern, value) is not None


def test_erd_entities_are_items_of_tables_or_objects() -> None:
    """Every table has an entity, and every line connects entities."""
    joined = {
        name
        for pair in re.findall(r"^ +(\w+) \S+--\S+ (\w+) :", ERD, re.MULTILINE)
        for name in pair
    }

    assert set(ENTITIES) == set(TABLE_OF) | OBJECTS
    assert set(TABLE_OF.values()) == set(TABLES)
    assert joined == set(ENTITIES)


@pytest.mark.parametrize("entity", TABLE_OF)
def test_erd_entity_has_the_key_of_its_table_and_existing_attributes(entity: str) -> None:
    """Names and types of keys agree with the table."""
    table = TABLE_OF[entity]
    key = key_of(entity)

    assert tuple(key) == table.key.names
    for name, each in key.items():
        assert each.kind == ("number" if table.get_type(name) == "N" else "string"), name
    assert {each.name for each in ENTITIES[entity]} - NAMES == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.name))
def test_erd_has_each_index_and_ttl_attribute(table: TableSchema) -> None:
    """The diagram shows every way to read an entity."""
    attributes = [each for name, of in TABLE_OF.items() if of is table for each in ENTITIES[name]]
    documented = {
        (found, each.name)
        for each in attributes
        for found in re.findall(r"index (\w+)$", each.comment)
    }

    assert documented == {(index.name, index.key.partition) for index in table.indexes}
    ttl = {each.name for each in attributes if re.search(r"\bTTL\b", each.comment)}
    assert ttl == ({table.expiry} if table.expiry else set())


@pytest.mark.parametrize("entity", SAMPLED)
def test_erd_entity_agrees_with_sample_items(entity: str) -> None:
    """Sample items have keys of these formats, and all required attributes with their types."""
    key = key_of(entity)
    found = [
        item
        for item in samples(TABLE_OF[entity])
        if all(
            each.kind == "number"
            or any(matches(str(item[name].get("S")), form) for form in each.forms)
            for name, each in key.items()
        )
    ]

    assert found, entity
    for each in ENTITIES[entity]:
        having = [item for item in found if each.name in item]
        assert each.is_optional or len(having) == len(found), each.name
        assert all(("N" if each.kind == "number" else "S") in item[each.name] for item in having)


@pytest.mark.parametrize("entity", sorted(set(TABLE_OF) - {"MESSAGE"}))
def test_erd_keys_agree_with_the_tables_of_the_document(entity: str) -> None:
    """The diagram and the tables of the document agree."""
    below = re.sub(r"<(\w+)[^>]*>", lambda id_: id_[1].upper(), TEXT.partition("## DynamoDB")[2])

    for each in key_of(entity).values():
        for form in each.forms:
            assert f"`{form}`" in below, form
