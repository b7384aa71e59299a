"""Table definitions for CloudFormation and NoSQL Workbench: current and complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chatserver.config import Warm
from chatserver.warm.messages.messages import decode_item
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import MESSAGES, TABLES, MessageField
from deploy.documents.nosql_workbench_samples import samples
from deploy.documents.schema_documents import cloudformation, encode_document

FOLDER = Path(__file__).parents[4] / "deploy" / "dynamodb"
# The properties of AWS::DynamoDB::Table that we use; it refuses unknown ones.
PROPERTIES = {
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "ProvisionedThroughput",
    "StreamSpecification",
    "TableName",
    "TimeToLiveSpecification",
}


@pytest.mark.parametrize(
    ("name", "file"),
    [("cloudformation", "cloudformation.json"), ("workbench", "nosql-workbench.json")],
)
def test_committed_document_of_the_tables_is_current(name: str, file: str) -> None:
    """A changed table needs new documents.

    If this fails, run `make docs`.
    """
    assert (FOLDER / file).read_bytes() == encode_document(name)


def test_template_has_each_table_once_with_valid_properties() -> None:
    """AWS creates tables with indexes one by one, and keeps all if the stack is deleted."""
    resources = cloudformation()["Resources"]

    names = [each["Properties"]["TableName"]["Fn::Sub"] for each in resources.values()]
    assert names == [f"${{TablePrefix}}{table.name}" for table in TABLES]
    for resource in resources.values():
        assert resource["Properties"].keys() <= PROPERTIES
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    indexed = [
        name for name, each in resources.items() if "GlobalSecondaryIndexes" in each["Properties"]
    ]
    waits = [resources[name].get("DependsOn", [None])[0] for name in indexed]
    assert waits == [None, *indexed[:-1]]


def test_template_references_are_declared_and_used() -> None:
    """Every referenced parameter and condition exists, and each is used."""
    template = cloudformation()
    named: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == "Ref":
                    named.add(inner)
                elif name == "Fn::If":
                    named.add(inner[0])
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(template)

    declared = template["Parameters"].keys() | template["Conditions"].keys()
    assert named - {"AWS::NoValue"} == declared - {"TablePrefix"}  # it is used in Fn::Sub


def test_samples_have_every_attribute_of_a_message() -> None:
    """The model contains every attribute of an item."""
    items = list(samples(MESSAGES))
    attributes = {value for name, value in vars(MessageField).items() if name.isupper()}

    assert {name for item in items for name in item} == attributes
    messages = [item for item in items if MessageField.STATUS in item]
    chats = {"d-alice-bob", "g-team", "g-busy", "01KAJ5W3N0TBJ8QW6X1V7ZC2YD"}
    assert {decode_item(item).chat for item in messages} == chats


_KINDS = {"HASH": "PartitionKey", "RANGE": "SortKey"}


def test_model_has_the_keys_and_indexes_of_the_server() -> None:
    """The model also has the types of projected attributes."""
    workbench = json.loads((FOLDER / "nosql-workbench.json").read_bytes())
    for table, model in zip(TABLES, workbench["DataModel"], strict=True):
        create_request = make_create_request(table, Warm())

        def keys_of(schema: list[dict[str, str]]) -> dict[str, str]:
            return {_KINDS[each["KeyType"]]: each["AttributeName"] for each in schema}

        def names_of(attributes: dict[str, Any]) -> dict[str, str]:
            return {kind: each["AttributeName"] for kind, each in attributes.items()}

        assert names_of(model["KeyAttributes"]) == keys_of(create_request["KeySchema"])
        assert {
            index["IndexName"]: (names_of(index["KeyAttributes"]), index["Projection"])
            for index in model["GlobalSecondaryIndexes"]
        } == {
            index["IndexName"]: (keys_of(index["KeySchema"]), index["Projection"])
            for index in create_request.get("GlobalSecondaryIndexes", ())
        }
        known = {each["AttributeName"] for each in model["NonKeyAttributes"]}
        assert {name for index in table.indexes for name in index.includes} <= known
