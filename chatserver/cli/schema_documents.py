"""Table definitions for other tools: CloudFormation, Terraform, NoSQL Workbench and IAM.


``python -m chatserver.cli.schema_documents cloudformation`` and ``… workbench`` print the files in
``deploy/dynamodb``, ``… terraform`` the input of ``deploy/terraform``, and ``… iam-<name>`` the
files in ``deploy/iam`` (`chatserver.warm.schema.iam_policies`). Tables created by the template and
by `chatserver tables apply` are identical, so either may run first.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

import chatserver
from chatserver.config import Warm
from chatserver.features.registry import list_features, load
from chatserver.protocol.entry_rules import shredded_form
from chatserver.protocol.frames import Ai, Attachment, Message
from chatserver.warm.archive import markers
from chatserver.warm.chats import legal_holds
from chatserver.warm.chats.records import READY, Chat, Member, User, describe_origin
from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages.long_bodies import pointer_to
from chatserver.warm.messages.store import PersistItem, encode_item
from chatserver.warm.schema import iam_policies
from chatserver.warm.schema.active_version import newest_record
from chatserver.warm.schema.provisioning import creation_of, projection_of
from chatserver.warm.schema.tables import (
    DIRECTORY,
    MESSAGES,
    SOCIAL,
    TABLES,
    Key,
    MessageField,
    SocialField,
    Table,
)

# Constant dates, so that the model changes only with the tables.
_DATE: Final = "Jan 01, 2026, 12:00 AM"
_TS: Final = 1_795_000_000_000_000
_NO_VALUE: Final = {"Ref": "AWS::NoValue"}
_IS_PROVISIONED, _IS_STREAMED = "IsProvisioned", "IsStreamed"


def cloudformation() -> dict[str, Any]:
    """Return the CloudFormation template. Its parameters are the settings of section `warm`.

    Tables with indexes are created one after the other, because AWS limits how many are created at
    the same time.
    """
    resources: dict[str, Any] = {}
    with_indexes: list[str] = []
    for table in TABLES:
        name = _logical_name(table)
        resources[name] = {
            "Type": "AWS::DynamoDB::Table",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": _properties(table),
        }
        if table.indexes:
            if with_indexes:
                resources[name]["DependsOn"] = [with_indexes[-1]]
            with_indexes.append(name)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The DynamoDB tables of chatserver. Generated: make docs",
        "Parameters": _parameters(),
        "Conditions": {
            _IS_PROVISIONED: {"Fn::Equals": [{"Ref": "Billing"}, "provisioned"]},
            _IS_STREAMED: {"Fn::Equals": [{"Ref": "Stream"}, "true"]},
        },
        "Resources": resources,
        "Outputs": {
            f"{_logical_name(table)}StreamArn": {
                "Condition": _IS_STREAMED,
                "Value": {"Fn::GetAtt": [_logical_name(table), "StreamArn"]},
            }
            for table in TABLES
            if table.is_streamed
        },
    }


def _logical_name(table: Table) -> str:
    return "".join(word.capitalize() for word in table.name.split("_")) + "Table"


def _parameters() -> dict[str, Any]:
    about = Warm.model_json_schema()["properties"]
    prefix, billing = about["table_prefix"], about["billing"]
    units = {
        name: {"Type": "Number", "Default": about[field]["default"], "MinValue": 1}
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
            "Default": str(about["stream"]["default"]).lower(),
            "AllowedValues": ["true", "false"],
            "Description": "CHAT_WARM_STREAM: needed if CHAT_ARCHIVE_REMOVAL is ttl",
        },
    }


def _properties(table: Table) -> dict[str, Any]:
    """Return the CreateTable properties, with parameters in place of settings."""
    made = creation_of(table, Warm(table_prefix="", billing="provisioned", stream=True))
    throughput = {
        "ReadCapacityUnits": {"Ref": "ReadUnits"},
        "WriteCapacityUnits": {"Ref": "WriteUnits"},
    }
    if_provisioned = {"Fn::If": [_IS_PROVISIONED, throughput, _NO_VALUE]}
    made["TableName"] = {"Fn::Sub": f"${{TablePrefix}}{table.name}"}
    made["BillingMode"] = {"Fn::If": [_IS_PROVISIONED, "PROVISIONED", "PAY_PER_REQUEST"]}
    made["ProvisionedThroughput"] = if_provisioned
    for index in made.get("GlobalSecondaryIndexes", ()):
        index["ProvisionedThroughput"] = if_provisioned
    if (stream := made.get("StreamSpecification")) is not None:
        # CloudFormation accepts the view type only and rejects `StreamEnabled`.
        view = {"StreamViewType": stream["StreamViewType"]}
        made["StreamSpecification"] = {"Fn::If": [_IS_STREAMED, view, _NO_VALUE]}
    if table.expiry is not None:
        made["TimeToLiveSpecification"] = {"AttributeName": table.expiry, "Enabled": True}
    return made


def terraform() -> dict[str, Any]:
    """Return the tables as ``deploy/terraform`` reads them, and their schema version item."""
    return {
        "tables": [_terraform_table(table) for table in TABLES],
        "schema": newest_record(),
    }


def _terraform_table(table: Table) -> dict[str, Any]:
    made = creation_of(table, Warm(stream=True))
    stream = made.get("StreamSpecification", {}).get("StreamViewType", "")
    return {
        "name": table.name,
        **_terraform_key(table.key),
        "attributes": [
            {"name": each["AttributeName"], "type": each["AttributeType"]}
            for each in made["AttributeDefinitions"]
        ],
        "indexes": [
            {
                "name": index.name,
                **_terraform_key(index.key),
                "projection_type": projection_of(index)["ProjectionType"],
                "non_key_attributes": list(index.includes),
            }
            for index in table.indexes
        ],
        "ttl": table.expiry or "",
        "stream_view": stream,
    }


def _terraform_key(key: Key) -> dict[str, str]:
    hash_key, range_key = (*key.names, "")[:2]
    return {"hash_key": hash_key, "range_key": range_key}


def workbench() -> dict[str, Any]:
    """Return the NoSQL Workbench model with encoded items of a short conversation."""
    return {
        "ModelName": "chatserver",
        "ModelMetadata": {
            "Author": "chatserver",
            "DateCreated": _DATE,
            "DateLastModified": _DATE,
            "Description": f"The tables of chatserver {chatserver.__version__}",
            "AWSService": "Amazon DynamoDB",
            "Version": "3.0",
        },
        "DataModel": [_model(table, list(samples(table))) for table in TABLES],
    }


def _model(table: Table, items: list[Item]) -> dict[str, Any]:
    made = creation_of(table, Warm(table_prefix=""))
    types = {each["AttributeName"]: each["AttributeType"] for each in made["AttributeDefinitions"]}
    for item in items:
        for name, value in item.items():
            types.setdefault(name, next(iter(value)))
    for index in table.indexes:
        for name in index.includes:
            types.setdefault(name, "S")
    others = sorted(types.keys() - set(table.key.names))
    return {
        "TableName": table.name,
        "KeyAttributes": _key_attributes(table, table.key),
        "NonKeyAttributes": [
            {"AttributeName": name, "AttributeType": types[name]} for name in others
        ],
        "TableFacets": [],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeyAttributes": _key_attributes(table, index.key),
                "Projection": projected["Projection"],
            }
            for index, projected in zip(
                table.indexes, made.get("GlobalSecondaryIndexes", ()), strict=True
            )
        ],
        "TableData": items,
        "DataAccess": {"MySql": {}},
        "BillingMode": made["BillingMode"],
    }


def _key_attributes(table: Table, key: Key) -> dict[str, Any]:
    kinds = ("PartitionKey", "SortKey")
    return {
        kind: {"AttributeName": name, "AttributeType": table.type_of(name)}
        for kind, name in zip(kinds, key.names, strict=False)
    }


def samples(table: Table) -> Iterable[Item]:
    """Return one item of each kind in a table, together covering all attributes."""
    for feature in list_features():
        if feature.sample_items:
            yield from load(feature.sample_items)(table)
    if table is MESSAGES:
        yield from _messages()
    elif table is DIRECTORY:
        yield from _directory()
    elif table is SOCIAL:
        yield _texts((SocialField.PK, SocialField.SK), ("u#alice", "info"))


def _texts(names: Iterable[str], texts: Iterable[str]) -> Item:
    return {name: {"S": text} for name, text in zip(names, texts, strict=True)}


def _messages() -> Iterable[Item]:
    def made(seq: int, sender: str, kind: str, body: str, **more: Any) -> Message:
        ts, chat = _TS + seq * 1_000_000, more.pop("chat", "d-alice-bob")
        return Message(seq, ts, chat, f"M{seq}", sender, f"r{seq}", kind, body, **more)

    picture = Attachment("f1", "sea.png", "image/png", 1024)
    edited = {"rev": 4, "edited_ts": _TS + 4_000_000, "edited_seq": 4}
    direct = [
        made(1, "alice", "text", "Hello, Bob", reactions={"bob": "👍"}, **edited),
        made(2, "bob", "text", "Hello!", reply_to=1, attachments=[picture]),
        made(3, "alice", "text", "", deleted=True, rev=6),
        made(4, "alice", "edit", "Hello, Bob", target=1),
        made(5, "alice", "text", "for a minute", expires_at=_TS // 1_000_000 + 60),
    ]
    for message in direct:
        receiver = "bob" if message.sender == "alice" else "alice"
        yield encode_item(PersistItem(message, receiver))
    long = made(6, "bob", "text", "")
    yield encode_item(PersistItem(long, "alice")) | pointer_to(b"a very long text")
    yield markers.encode_marker(direct[-1])
    yield legal_holds.encode_copy(made(1, "alice", "text", "Hello, Bo"))
    group = [
        made(1, "alice", "text", "Welcome", chat="g-team"),
        made(2, "alice", "update", "", name="Team", chat="g-team"),
        made(3, "alice", "member", "", user="eve", role="member", muted_until=0, chat="g-team"),
        made(4, "alice", "member", "", user="eve", role="", banned=True, chat="g-team"),
        made(
            2, "ai-ada", "text", "Hello", reply_to=1, ai=_SPOKEN, chat="01KAJ5W3N0TBJ8QW6X1V7ZC2YD"
        ),
    ]
    for message in group:
        yield encode_item(PersistItem(message, None))
    announcement = made(5, "alice", "text", "Stand-up at ten", chat="g-team")
    yield encode_item(PersistItem(shredded_form(made(7, "bob", "text", "Lost")), "alice"))
    yield encode_item(PersistItem(announcement, None)) | {MessageField.PINNED: {"BOOL": True}}
    back = made(6, "bob", "text", "Of long ago")
    yield encode_item(PersistItem(back, "alice")) | {
        MessageField.RESTORED: {"N": str(_TS // 1_000_000)}
    }


_SPOKEN: Final = Ai("echo", "done", 12, 4)


def _directory() -> Iterable[Item]:
    created_ms = _TS // 1000
    for user, name in (("alice", "Alice"), ("bob", None)):
        yield User(user, name, created_ms).encode()
    for chat in (
        Chat("d-alice-bob", "direct", None, 1, created_ms, count=2),
        Chat("g-team", "group", "Team", 3, created_ms, count=2),
    ):
        roles: dict[str, Any] = {"alice": "member", "bob": "member"}
        if chat.kind == "group":
            roles["alice"] = "owner"
        yield chat.encode(READY, describe_origin(chat.kind, chat.name, roles))
        for user, role in roles.items():
            yield Member(chat.chat, user, role, joined=1, read=2, received=2).encode()


DOCUMENTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "cloudformation": cloudformation,
    "workbench": workbench,
    "terraform": terraform,
    **{
        f"iam-{name}": functools.partial(iam_policies.policy, name)
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
