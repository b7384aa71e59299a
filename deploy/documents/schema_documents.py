"""Table definitions for other tools: CloudFormation, Terraform, NoSQL Workbench and IAM.

``python -m deploy.documents.schema_documents NAME`` prints a document. `cloudformation` and
`workbench` are stored in ``deploy/dynamodb``. `terraform` is the input for ``deploy/terraform``.
`iam-<name>` is stored in ``deploy/iam`` (`chatserver.warm.schema.iam_policies`). CloudFormation and
`chatserver tables apply` create identical tables, so either may run first.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from chatserver.config import Warm
from chatserver.warm.schema import iam_policies
from chatserver.warm.schema.active_version import make_schema_item
from chatserver.warm.schema.provisioning import build_projection, make_create_request
from chatserver.warm.schema.tables import TABLES, Key, TableSchema
from deploy.documents.nosql_workbench_model import workbench

_NO_VALUE: Final = {"Ref": "AWS::NoValue"}
_IS_PROVISIONED, _IS_STREAMED = "IsProvisioned", "IsStreamed"


def cloudformation() -> dict[str, Any]:
    """Return the CloudFormation template. Its parameters are settings from the `warm` section.

    Tables with indexes are created one after the other, because AWS limits how many are created at
    the same time.
    """
    resources: dict[str, Any] = {}
    with_indexes: list[str] = []
    for table in TABLES:
        name = _make_logical_name(table)
        resources[name] = {
            "Type": "AWS::DynamoDB::Table",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": _make_properties(table),
        }
        if table.indexes:
            if with_indexes:
                resources[name]["DependsOn"] = [with_indexes[-1]]
            with_indexes.append(name)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The DynamoDB tables of chatserver. Generated: make docs",
        "Parameters": _make_parameters(),
        "Conditions": {
            _IS_PROVISIONED: {"Fn::Equals": [{"Ref": "Billing"}, "provisioned"]},
            _IS_STREAMED: {"Fn::Equals": [{"Ref": "Stream"}, "true"]},
        },
        "Resources": resources,
        "Outputs": {
            f"{_make_logical_name(table)}StreamArn": {
                "Condition": _IS_STREAMED,
                "Value": {"Fn::GetAtt": [_make_logical_name(table), "StreamArn"]},
            }
            for table in TABLES
            if table.is_streamed
        },
    }


def _make_logical_name(table: TableSchema) -> str:
    return "".join(word.capitalize() for word in table.name.split("_")) + "Table"


def _make_parameters() -> dict[str, Any]:
    properties = Warm.model_json_schema()["properties"]
    prefix, billing = properties["table_prefix"], properties["billing"]
    units = {
        name: {"Type": "Number", "Default": properties[field]["default"], "MinValue": 1}
        for name, field in (("ReadUnits", "read_units"), ("WriteUnits", "write_units"))
    }
    return {
        "TablePrefix": {
            "Type": "String",
            "Default": prefix["default"],
            "AllowedPattern": prefix["pattern"],
            "Description": "CHAT_WARM_TABLE_PREFIX",
        },
        "Billing": {
            "Type": "String",
            "Default": billing["default"],
            "AllowedValues": billing["enum"],
            "Description": "CHAT_WARM_BILLING",
        },
        **units,
        "Stream": {
            "Type": "String",
            "Default": str(properties["stream"]["default"]).lower(),
            "AllowedValues": ["true", "false"],
            "Description": "CHAT_WARM_STREAM: needed if CHAT_ARCHIVE_REMOVAL is ttl",
        },
    }


def _make_properties(table: TableSchema) -> dict[str, Any]:
    """Return the CreateTable properties, with parameters in place of settings."""
    definition = make_create_request(
        table, Warm(table_prefix="", billing="provisioned", stream=True)
    )
    throughput = {
        "ReadCapacityUnits": {"Ref": "ReadUnits"},
        "WriteCapacityUnits": {"Ref": "WriteUnits"},
    }
    if_provisioned = {"Fn::If": [_IS_PROVISIONED, throughput, _NO_VALUE]}
    definition["TableName"] = {"Fn::Sub": f"${{TablePrefix}}{table.name}"}
    definition["BillingMode"] = {"Fn::If": [_IS_PROVISIONED, "PROVISIONED", "PAY_PER_REQUEST"]}
    definition["ProvisionedThroughput"] = if_provisioned
    for index in definition.get("GlobalSecondaryIndexes", ()):
        index["ProvisionedThroughput"] = if_provisioned
    if (stream := definition.get("StreamSpecification")) is not None:
        # In a StreamSpecification, CloudFormation rejects `StreamEnabled`.
        view = {"StreamViewType": stream["StreamViewType"]}
        definition["StreamSpecification"] = {"Fn::If": [_IS_STREAMED, view, _NO_VALUE]}
    if table.expiry is not None:
        definition["TimeToLiveSpecification"] = {"AttributeName": table.expiry, "Enabled": True}
    return definition


def terraform() -> dict[str, Any]:
    """Return the input for `deploy/terraform`: table definitions and the schema version item."""
    return {
        "tables": [_make_terraform_table(table) for table in TABLES],
        "schema": make_schema_item(),
    }


def _make_terraform_table(table: TableSchema) -> dict[str, Any]:
    definition = make_create_request(table, Warm(stream=True))
    stream = definition.get("StreamSpecification", {}).get("StreamViewType", "")
    return {
        "name": table.name,
        **_make_terraform_key(table.key),
        "attributes": [
            {
                "name": attribute_definition["AttributeName"],
                "type": attribute_definition["AttributeType"],
            }
            for attribute_definition in definition["AttributeDefinitions"]
        ],
        "indexes": [
            {
                "name": index.name,
                **_make_terraform_key(index.key),
                "projection_type": build_projection(index)["ProjectionType"],
                "non_key_attributes": list(index.includes),
            }
            for index in table.indexes
        ],
        "ttl": table.expiry or "",
        "stream_view": stream,
    }


def _make_terraform_key(key: Key) -> dict[str, str]:
    hash_key, range_key = (*key.names, "")[:2]
    return {"hash_key": hash_key, "range_key": range_key}


DOCUMENTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "cloudformation": cloudformation,
    "workbench": workbench,
    "terraform": terraform,
    **{
        f"iam-{name}": functools.partial(iam_policies.make_policy, name)
        for name in iam_policies.POLICIES
    },
}


def encode_document(name: str) -> bytes:
    """Return a document as committed in the repository."""
    return msgspec.json.format(msgspec.json.encode(DOCUMENTS[name]()), indent=1) + b"\n"


def main() -> None:
    """Write the document named by the first argument to standard output."""
    sys.stdout.write(encode_document(sys.argv[1]).decode())


if __name__ == "__main__":
    main()
