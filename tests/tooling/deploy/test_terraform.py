"""Terraform: the server's tables, the roles of deploy/iam, and only arguments that exist.

`terraform` downloads its provider from a registry, which may be unavailable; if it is available,
``terraform -chdir=deploy/terraform test`` plans all resources. These tests evaluate the files with
a parser and compare each argument with the schema of the provider.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from chatserver.cold.bucket import _make_lifecycle_rules
from chatserver.config import Cold, Warm, load_settings
from chatserver.warm.schema.iam_policies import POLICIES, make_policy
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import TABLES, TableSchema
from deploy.documents.schema_documents import encode_document
from tests.support.deployments import (
    PROVIDER,
    ROOT,
    TERRAFORM,
    TERRAFORM_CASES,
    evaluate_terraform,
    given_settings,
)

STREAM_IS_ON = {"terraform-default": False, "terraform-provisioned": True}


@functools.cache
def evaluated(name: str) -> Mapping[str, dict[str, Any]]:
    return evaluate_terraform(TERRAFORM_CASES[name])


def as_list(value: Any) -> list[Any]:
    """Return a value as a list: none, one or several blocks."""
    return value if isinstance(value, list) else [] if value is None else [value]


def source() -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(TERRAFORM.glob("*.tf")))


def test_tables_that_terraform_reads_are_current() -> None:
    """A change of a table also changes deploy/terraform/tables.json.

    If this fails, run `make docs`.
    """
    assert (TERRAFORM / "tables.json").read_bytes() == encode_document("terraform")


def create_request_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the CreateTable request for a table of Terraform."""

    def schema_of(keys: dict[str, Any]) -> list[dict[str, str]]:
        names = (("hash_key", "HASH"), ("range_key", "RANGE"))
        return [
            {"AttributeName": keys[name], "KeyType": kind} for name, kind in names if keys[name]
        ]

    def projection_of(index: dict[str, Any]) -> dict[str, Any]:
        included = index["non_key_attributes"]
        more = {"NonKeyAttributes": included} if included else {}
        return {"ProjectionType": index["projection_type"], **more}

    def units_of(resource: dict[str, Any]) -> dict[str, Any]:
        if resource["read_capacity"] is None:
            return {}
        units = {
            "ReadCapacityUnits": resource["read_capacity"],
            "WriteCapacityUnits": resource["write_capacity"],
        }
        return {"ProvisionedThroughput": units}

    request = {
        "TableName": arguments["name"],
        "BillingMode": arguments["billing_mode"],
        "AttributeDefinitions": [
            {"AttributeName": each["name"], "AttributeType": each["type"]}
            for each in as_list(arguments["attribute"])
        ],
        "KeySchema": schema_of(arguments),
        **units_of(arguments),
    }
    if indexes := as_list(arguments.get("global_secondary_index")):
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index["name"],
                "KeySchema": schema_of(index),
                "Projection": projection_of(index),
                **units_of(index),
            }
            for index in indexes
        ]
    if arguments["stream_enabled"]:
        view = arguments["stream_view_type"]
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": view}
    return request


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("name", TERRAFORM_CASES)
def test_tables_equal_those_of_the_server(name: str, table: TableSchema) -> None:
    """Keys, indexes, types, projections, capacity, stream and TTL equal the server's request."""
    units = 25 if name == "terraform-provisioned" else 100
    expected = make_create_request(
        table,
        Warm(
            billing="provisioned" if name == "terraform-provisioned" else "on_demand",
            read_units=units,
            write_units=units,
            stream=STREAM_IS_ON[name],
        ),
    )
    arguments = evaluated(name)[f'aws_dynamodb_table.this["{table.name}"]']

    assert create_request_of(arguments) == expected
    expiry = [each["attribute_name"] for each in as_list(arguments.get("ttl"))]
    assert expiry == ([table.expiry] if table.expiry else [])
    assert arguments["deletion_protection_enabled"] is True
    assert arguments["point_in_time_recovery"]["enabled"] is True


@pytest.mark.parametrize("name", TERRAFORM_CASES)
def test_resources_have_valid_arguments(name: str) -> None:
    """aws-provider.json, in this folder, lists the known and the required arguments."""
    provider = json.loads(PROVIDER.read_text(encoding="utf-8"))

    def check(where: str, given: dict[str, Any], known: dict[str, Any]) -> list[str]:
        problems = [f"{where}.{each}: unknown" for each in given.keys() - known.keys()]
        for argument, kind in known.items():
            if argument == "id":
                continue  # the parser sets its own id; `terraform test` checks the real one
            blocks = as_list(given.get(argument)) if isinstance(kind, dict) else []
            if kind == "required" and given.get(argument) is None:
                problems.append(f"{where}.{argument}: is required")
            if kind == "computed" and argument in given:
                problems.append(f"{where}.{argument}: cannot be set")
            if isinstance(kind, dict):
                if len(blocks) < kind["min"]:
                    problems.append(f"{where}.{argument}: at least {kind['min']}")
                for block in blocks:
                    problems += check(f"{where}.{argument}", block, kind["block"])
        return problems

    problems = [
        problem
        for address, arguments in evaluated(name).items()
        for problem in check(address, arguments, provider[address.split(".")[0]])
    ]
    assert problems == []
    assert set(re.findall(r'^resource "(\w+)"', source(), re.MULTILINE)) == provider.keys()


def test_every_resource_is_in_a_tested_configuration() -> None:
    """Optional resources are in at least one of the two configurations."""
    found = {
        re.sub(r"\[.*", "", address) for name in TERRAFORM_CASES for address in evaluated(name)
    }
    declared = re.findall(r'^resource "(\w+)" "(\w+)"', source(), re.MULTILINE)

    assert found == {f"{kind}.{name}" for kind, name in declared}


# `tenants` may delete every tenant and is not part of a deployment of one tenant.
# `encryption` is written for one key and has its own test.
@pytest.mark.parametrize("name", sorted({*POLICIES} - {"tenants", "encryption"}))
def test_policies_equal_those_of_deploy_iam(name: str) -> None:
    """They name the resources of the account, and are limited to the tenant if there is one."""
    text = json.dumps(make_policy(name), sort_keys=True)
    expected = text.replace(
        "arn:aws:dynamodb:*:*:table/", "arn:aws:dynamodb:eu-central-1:123456789012:table/"
    ).replace("arn:aws:s3:::chatserver", "arn:aws:s3:::chatserver-123456789012-eu-central-1")
    without_tenant = json.loads(expected.replace("${aws:PrincipalTag/tenant}/*", "*"))
    for statement in without_tenant["Statement"]:
        statement.pop("Condition", None)

    def actual(case: str) -> Any:
        return json.loads(evaluated(case)[f'aws_iam_policy.this["{name}"]']["policy"])

    assert actual("terraform-provisioned") == json.loads(expected)
    assert actual("terraform-default") == without_tenant
    assert "${" not in json.dumps(actual("terraform-default"))


def test_roles_may_use_the_encryption_key_only_for_their_tenant() -> None:
    """With a key, roles have the rights of deploy/iam on it; without a key, they have none."""
    (expected,) = make_policy("encryption")["Statement"]
    plan = evaluated("terraform-provisioned")
    tenant = plan['aws_iam_role.this["api"]']["tags"]["tenant"]
    for role in ("api", "worker", "archive", "operator"):
        text = plan[f'aws_iam_role_policy.encryption["{role}"]']["policy"]
        (statement,) = json.loads(text)["Statement"]
        assert statement["Action"] == expected["Action"]
        assert statement["Resource"] == ["arn:aws:kms:eu-central-1:123456789012:key/2"]
        assert statement["Condition"] == {"StringEquals": {"kms:EncryptionContext:tenant": tenant}}
    assert not any("role_policy.encryption" in name for name in evaluated("terraform-default"))


def test_roles_have_the_policies_that_their_processes_need() -> None:
    """Gateways have none, servers have no Scan, and only the chart's service accounts get them."""
    plan = evaluated("terraform-provisioned")
    attached: dict[str, set[str]] = {}
    for address in plan:
        if match := re.match(r'aws_iam_role_policy_attachment.this\["(\w+)-(\w+)"\]', address):
            attached.setdefault(match[1], set()).add(match[2])

    assert attached == {
        "api": {"processes"},
        "worker": {"processes"},
        "archive": {"processes", "archive"},
        "operator": {"processes", "operator"},
    }
    for role in attached:
        arguments = plan[f'aws_iam_role.this["{role}"]']
        (trust,) = json.loads(arguments["assume_role_policy"])["Statement"]
        subject = trust["Condition"]["StringEquals"]["oidc.example.com/id/A:sub"]
        assert subject == f"system:serviceaccount:chat:chat-chatserver-{role}"
        assert arguments["tags"] == {"tenant": "acme"}


def test_bucket_lifecycle_equals_tables_apply_without_slow_storage() -> None:
    """Archived messages never move to a storage class that takes hours to read."""
    plan = evaluated("terraform-default")
    rules = plan["aws_s3_bucket_lifecycle_configuration.this"]["rule"]

    def to_s3_rule(rule: dict[str, Any]) -> dict[str, Any]:
        s3_rule = {"Status": rule["status"], "Filter": {"Prefix": rule["filter"]["prefix"]}}
        if expiration := rule.get("expiration"):
            s3_rule["Expiration"] = {"Days": expiration["days"]}
        if parts := rule.get("abort_incomplete_multipart_upload"):
            days = parts["days_after_initiation"]
            s3_rule["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": days}
        return s3_rule

    actual = [to_s3_rule(rule) for rule in rules[:3]]
    expected = [{**rule} for rule in _make_lifecycle_rules("", Cold())]
    ids = [rule.pop("ID") for rule in expected]

    assert actual == expected
    assert re.findall(r'^ +id += "(chatserver-\w+)', source(), re.MULTILINE)[1:] == ids
    assert [rule["transition"]["storage_class"] for rule in rules if "transition" in rule] == [
        "GLACIER_IR"
    ]
    assert '"GLACIER"' not in source()
    assert '"DEEP_ARCHIVE"' not in source()
    block = plan["aws_s3_bucket_public_access_block.this"]
    assert [value for name, value in block.items() if name != "bucket"] == [True] * 4


def test_outputs_are_valid_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are named like settings, and Redis has the rights from docs/security.md."""
    names = set(re.findall(r"\b(CHAT_[A-Z0-9_]+)\s+= ", source()))
    values = {"CHAT_WARM_BILLING": "on_demand", "CHAT_ARCHIVE_REMOVAL": "worker"}
    values |= {"CHAT_COLD_ORIGINS": "[]", "CHAT_REDIS_PARTITIONS": "64"}
    values |= {"CHAT_REDIS_CLUSTER": "true", "CHAT_WARM_STREAM": "false"}
    values |= {"CHAT_REDIS_URL": "rediss://chat@redis.example:6379"}
    with given_settings(monkeypatch, {name: values.get(name, "abc") for name in names}):
        assert load_settings().redis.partitions == 64

    document = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rights = re.search(r"ACL SETUSER chat (on .*?)```", document, re.DOTALL)
    assert rights is not None
    expected = set(rights[1].split()) - {">password", "resetkeys"}
    for kind, name in (("memorydb", "default"), ("elasticache", "provisioned")):
        user = evaluated(f"terraform-{name}")[f"aws_{kind}_user.chat[0]"]
        assert set(user["access_string"].split()) == expected
