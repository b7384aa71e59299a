"""Committed files about the tables: the CloudFormation template and the measured units."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chatserver.config import Warm
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.provisioning import apply_tables, make_create_request
from chatserver.warm.schema.tables import MESSAGES, TABLES
from tests.benchmarks import item_units
from tests.benchmarks.support.harness import PUBLISHED
from tests.integration.warm.support import Tables, settings_for

ROOT = Path(__file__).parents[4]
TEMPLATE = ROOT / "deploy" / "dynamodb" / "cloudformation.json"
MODEL = ROOT / "docs" / "data-model.md"
_ABSENT = object()


class Stack:
    """A template with parameter values, evaluated like a subset of CloudFormation."""

    def __init__(self, template: dict[str, Any], given: dict[str, str]) -> None:
        self._parameters: dict[str, Any] = {}
        for name, each in template["Parameters"].items():
            value = given.get(name, each.get("Default"))
            self._parameters[name] = int(value) if each["Type"] == "Number" else value
        self._conditions = {
            name: self._compare(*each["Fn::Equals"])
            for name, each in template["Conditions"].items()
        }
        self.tables = [
            self.resolve(resource["Properties"]) for resource in template["Resources"].values()
        ]

    def _compare(self, left: Any, right: Any) -> bool:
        return bool(self.resolve(left) == self.resolve(right))

    def resolve(self, value: Any) -> Any:
        """Return a value with intrinsic functions evaluated."""
        match value:
            case {"Ref": "AWS::NoValue"}:
                return _ABSENT
            case {"Ref": name}:
                return self._parameters[name]
            case {"Fn::Sub": text}:
                return text.replace("${TablePrefix}", self._parameters["TablePrefix"])
            case {"Fn::If": [condition, then, otherwise]}:
                return self.resolve(then if self._conditions[condition] else otherwise)
            case dict():
                made = {name: self.resolve(inner) for name, inner in value.items()}
                return {name: inner for name, inner in made.items() if inner is not _ABSENT}
            case list():
                return [self.resolve(inner) for inner in value]
            case _:
                return value


async def create_tables(client: DynamoClient, stack: Stack) -> None:
    """Create the tables of a stack as CloudFormation does."""
    for properties in stack.tables:
        expiry = properties.pop("TimeToLiveSpecification", None)
        if "StreamSpecification" in properties:
            properties["StreamSpecification"]["StreamEnabled"] = True
        await client.call("create_table", properties)
        if expiry is not None:
            request = {"TableName": properties["TableName"], "TimeToLiveSpecification": expiry}
            await client.call("update_time_to_live", request)


async def describe(client: DynamoClient, settings: Warm) -> list[Any]:
    """Return the compared properties of all tables."""
    found = []
    for table in TABLES:
        name = {"TableName": table.name_in(settings)}
        described = (await client.call("describe_table", name))["Table"]
        expiry = (await client.call("describe_time_to_live", name))["TimeToLiveDescription"]
        indexes = described.get("GlobalSecondaryIndexes", [])
        found.append(
            {
                "keys": described["KeySchema"],
                "types": sorted(described["AttributeDefinitions"], key=str),
                "units": _units(described),
                "indexes": {
                    index["IndexName"]: (index["KeySchema"], index["Projection"], _units(index))
                    for index in indexes
                },
                "stream": described.get("StreamSpecification"),
                "expiry": expiry,
            }
        )
    return found


def _units(described: dict[str, Any]) -> tuple[int, int]:
    units = described.get("ProvisionedThroughput", {})
    return units.get("ReadCapacityUnits", 0), units.get("WriteCapacityUnits", 0)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),
        (
            {"Billing": "provisioned", "ReadUnits": "7", "WriteUnits": "9", "Stream": "true"},
            {"billing": "provisioned", "read_units": 7, "write_units": 9, "stream": True},
        ),
    ],
    ids=["defaults", "changed"],
)
async def test_template_creates_the_same_tables_as_the_server(
    bare: Tables, given: dict[str, str], changes: dict[str, Any]
) -> None:
    """Keys, indexes, units, stream and TTL match, so `tables apply` changes nothing."""
    template = msgspec.json.decode(TEMPLATE.read_bytes())
    theirs = settings_for(bare.settings.endpoint, **changes)
    ours = settings_for(bare.settings.endpoint, **changes)
    stack = Stack(template, given | {"TablePrefix": theirs.table_prefix})

    await create_tables(bare.client, stack)
    client = copy.copy(bare.client)
    client.settings = ours
    await apply_tables(client, ours, poll_s=0.01)

    assert await describe(bare.client, theirs) == await describe(bare.client, ours)
    again = await apply_tables(bare.client, theirs, poll_s=0.01)
    assert {change.action for change in again} == {"kept"}


async def test_documented_units_of_a_message_match_the_server(bare: Tables) -> None:
    """The documented cost of each projection is what the server reports for its items.

    On failure run `python -m tests.benchmarks.item_units` and copy its tables to docs/data-
    model.md.
    """
    figures = msgspec.json.decode((PUBLISHED / "units.json").read_bytes())

    measured = await item_units.measure(bare.client, item_units.OURS)

    assert measured == figures["choices"][item_units.OURS]
    assert item_units.render(figures) in MODEL.read_text(encoding="utf-8")


def test_measured_projection_is_that_of_the_server() -> None:
    """The units are measured with the indexes that the server creates."""
    ours = item_units.table_for(item_units.OURS)["GlobalSecondaryIndexes"]

    assert ours == make_create_request(MESSAGES, settings_for(None))["GlobalSecondaryIndexes"]
