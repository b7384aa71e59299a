"""The picture of entities in docs/data-model.md: keys, indexes and items as the code has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from chatserver.cli.workbench_samples import samples
from chatserver.warm.schema import directory_attributes, tables
from chatserver.warm.schema.tables import CHAT_SESSION, DIRECTORY, MESSAGES, SOCIAL, TABLES, Table

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
# Of these the generated model of the tables has items that the encoders made.
SAMPLED = ("USER", "CHAT", "MEMBER", "MESSAGE", "CHAT_SESSION", "COMPANION", "PERSONA", "PROFILE")
NAMES = {
    name
    for module in (tables, directory_attributes)
    for owner in vars(module).values()
    if isinstance(owner, type) and owner.__name__.endswith("Field")
    for constant, name in vars(owner).items()
    if constant.isupper()
}
_ATTRIBUTE = re.compile(r'^ +(string|number) (\w+)(?: (PK|FK))?(?: "([^"]*)")?$', re.MULTILINE)


class Attribute(NamedTuple):
    """A line of an entity."""

    kind: str
    name: str
    mark: str
    comment: str

    @property
    def is_optional(self) -> bool:
        """Whether items may lack it."""
        return bool(re.search(r"\boptional\b", self.comment))

    @property
    def forms(self) -> list[str]:
        """How the values of a key look, with ids in capitals."""
        return re.split(r", index ", self.comment)[0].split(" or ")


# Mermaid takes the word PK for a mark, wherever it stands.
REAL_NAMES = {"partition": "PK", "sort": "SK"}
ENTITIES = {
    name: [
        Attribute(kind, REAL_NAMES.get(attribute, attribute), mark, comment)
        for kind, attribute, mark, comment in _ATTRIBUTE.findall(body)
    ]
    for name, body in re.findall(r"^ {4}(\w+) \{\n(.*?)^ {4}\}$", ERD, re.MULTILINE | re.DOTALL)
}


def key_of(entity: str) -> dict[str, Attribute]:
    """Return the attributes that are the key, by name."""
    return {one.name: one for one in ENTITIES[entity] if one.mark == "PK"}


def matches(value: str, form: str) -> bool:
    """Say whether a key's value is of a form such as `m#USER`."""
    words = {"ACTIVE", "OLD"}  # these stand for themselves
    pattern = re.sub(r"[A-Z]+", lambda word: word[0] if word[0] in words else "[^#]+", form)
    return re.fullmatch(pattern, value) is not None


def test_erd_has_an_entity_of_each_table_and_nothing_that_is_not_there() -> None:
    """Each entity is items of a table, or objects of the bucket; lines join entities."""
    joined = {
        name
        for pair in re.findall(r"^ +(\w+) \S+--\S+ (\w+) :", ERD, re.MULTILINE)
        for name in pair
    }

    assert set(ENTITIES) == set(TABLE_OF) | OBJECTS
    assert set(TABLE_OF.values()) == set(TABLES)
    assert joined == set(ENTITIES)


@pytest.mark.parametrize("entity", TABLE_OF)
def test_erd_entity_has_the_key_of_its_table_and_attributes_that_there_are(entity: str) -> None:
    """By name and by type."""
    table = TABLE_OF[entity]
    key = key_of(entity)

    assert tuple(key) == table.key.names
    for name, one in key.items():
        assert one.kind == ("number" if table.type_of(name) == "N" else "string"), name
    assert {one.name for one in ENTITIES[entity]} - NAMES == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.name))
def test_erd_names_each_index_at_its_partition_key_and_what_ttl_reads(table: Table) -> None:
    """The diagram shows every way to read an entity."""
    attributes = [one for name, of in TABLE_OF.items() if of is table for one in ENTITIES[name]]
    noted = {
        (found, one.name)
        for one in attributes
        for found in re.findall(r"index (\w+)$", one.comment)
    }

    assert noted == {(index.name, index.key.partition) for index in table.indexes}
    ttl = {one.name for one in attributes if re.search(r"\bTTL\b", one.comment)}
    assert ttl == ({table.expiry} if table.expiry else set())


@pytest.mark.parametrize("entity", SAMPLED)
def test_erd_entity_is_as_the_encoders_make_it(entity: str) -> None:
    """An item with keys of these forms, with everything that is not optional, of these types."""
    key = key_of(entity)
    found = [
        item
        for item in samples(TABLE_OF[entity])
        if all(
            one.kind == "number"
            or any(matches(str(item[name].get("S")), form) for form in one.forms)
            for name, one in key.items()
        )
    ]

    assert found, entity
    for one in ENTITIES[entity]:
        having = [item for item in found if one.name in item]
        assert one.is_optional or len(having) == len(found), one.name
        assert all(("N" if one.kind == "number" else "S") in item[one.name] for item in having)


@pytest.mark.parametrize("entity", sorted(set(TABLE_OF) - {"MESSAGE"}))
def test_erd_keys_are_those_of_the_tables_below_it(entity: str) -> None:
    """The diagram and the tables of the document agree."""
    below = re.sub(r"<(\w+)[^>]*>", lambda id_: id_[1].upper(), TEXT.partition("## DynamoDB")[2])

    for one in key_of(entity).values():
        for form in one.forms:
            assert f"`{form}`" in below, form
