"""Terraform: the tables of the server, the roles of deploy/iam, and no argument is made up.

`terraform` itself fetches its provider from a registry that is not everywhere; where it can,
``terraform -chdir=deploy/terraform test`` plans it all. Here its language is evaluated by a parser,
and each argument is looked up in what the provider says that it takes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from chatserver.cli.schema_documents import encode_document
from chatserver.cold.bucket import _lifecycle
from chatserver.config import Cold, Warm, load_settings
from chatserver.warm.schema.iam_policies import POLICIES, policy
from chatserver.warm.schema.provisioning import creation_of
from chatserver.warm.schema.tables import TABLES, Table
from tests.support.deployments import (
    CLOUDS,
    PROVIDER,
    ROOT,
    TERRAFORM,
    evaluate_terraform,
    given_settings,
)

STREAM_IS_ON = {"terraform-default": False, "terraform-provisioned": True}


@functools.cache
def evaluated(name: str) -> Mapping[str, dict[str, Any]]:
    return evaluate_terraform(CLOUDS[name])


def many(value: Any) -> list[Any]:
    """Return blocks as a list, however many there are."""
    return value if isinstance(value, list) else [] if value is None else [value]


def source() -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(TERRAFORM.glob("*.tf")))


def test_tables_that_terraform_reads_are_current() -> None:
    """A change of a table is a change of deploy/terraform/tables.json.

    When this fails: make docs
    """
    assert (TERRAFORM / "tables.json").read_bytes() == encode_document("terraform")


def made_by_terraform(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a table of Terraform as the request that would create it."""

    def schema_of(keys: dict[str, Any]) -> list[dict[str, str]]:
        names = (("hash_key", "HASH"), ("range_key", "RANGE"))
        return [
            {"AttributeName": keys[name], "KeyType": kind} for name, kind in names if keys[name]
        ]

    def projection_of(index: dict[str, Any]) -> dict[str, Any]:
        included = index["non_key_attributes"]
        more = {"NonKeyAttributes": included} if included else {}
        return {"ProjectionType": index["projection_type"], **more}

    def units_of(of: dict[str, Any]) -> dict[str, Any]:
        if of["read_capacity"] is None:
            return {}
        units = {
            "ReadCapacityUnits": of["read_capacity"],
            "WriteCapacityUnits": of["write_capacity"],
        }
        return {"ProvisionedThroughput": units}

    request = {
        "TableName": arguments["name"],
        "BillingMode": arguments["billing_mode"],
        "AttributeDefinitions": [
            {"AttributeName": each["name"], "AttributeType": each["type"]}
            for each in many(arguments["attribute"])
        ],
        "KeySchema": schema_of(arguments),
        **units_of(arguments),
    }
    if indexes := many(arguments.get("global_secondary_index")):
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
@pytest.mark.parametrize("name", CLOUDS)
def test_tables_are_those_that_the_server_makes(name: str, table: Table) -> None:
    """Keys, indexes, types, projections, capacity, Stream and TTL, by the server's own request."""
    units = 25 if name == "terraform-provisioned" else 100
    wanted = creation_of(
        table,
        Warm(
            billing="provisioned" if name == "terraform-provisioned" else "on_demand",
            read_units=units,
            write_units=units,
            stream=STREAM_IS_ON[name],
        ),
    )
    arguments = evaluated(name)[f'aws_dynamodb_table.this["{table.name}"]']

    assert made_by_terraform(arguments) == wanted
    expiry = [each["attribute_name"] for each in many(arguments.get("ttl"))]
    assert expiry == ([table.expiry] if table.expiry else [])
    assert arguments["deletion_protection_enabled"] is True
    assert arguments["point_in_time_recovery"]["enabled"] is True


@pytest.mark.parametrize("name", CLOUDS)
def test_no_argument_is_unknown_to_the_provider(name: str) -> None:
    """Nor is one left out that it requires. What it takes: tests/unit/deploy/aws-provider.json."""
    provider = json.loads(PROVIDER.read_text(encoding="utf-8"))

    def check(where: str, given: dict[str, Any], known: dict[str, Any]) -> list[str]:
        wrong = [f"{where}.{each}: unknown" for each in given.keys() - known.keys()]
        for argument, kind in known.items():
            if argument == "id":
                continue  # the parser puts its own there; `terraform test` sees ours
            blocks = many(given.get(argument)) if isinstance(kind, dict) else []
            if kind == "required" and given.get(argument) is None:
                wrong.append(f"{where}.{argument}: is required")
            if kind == "computed" and argument in given:
                wrong.append(f"{where}.{argument}: cannot be given")
            if isinstance(kind, dict):
                if len(blocks) < kind["min"]:
                    wrong.append(f"{where}.{argument}: at least {kind['min']}")
                for block in blocks:
                    wrong += check(f"{where}.{argument}", block, kind["block"])
        return wrong

    wrong = [
        problem
        for address, arguments in evaluated(name).items()
        for problem in check(address, arguments, provider[address.split(".")[0]])
    ]
    assert wrong == []
    assert set(re.findall(r'^resource "(\w+)"', source(), re.MULTILINE)) == provider.keys()


def test_every_resource_is_looked_at() -> None:
    """Those of one kind of Redis, of capacity, of keys and models are in one of the two clouds."""
    found = {re.sub(r"\[.*", "", address) for name in CLOUDS for address in evaluated(name)}
    declared = re.findall(r'^resource "(\w+)" "(\w+)"', source(), re.MULTILINE)

    assert found == {f"{kind}.{name}" for kind, name in declared}


# The role that may delete every tenant is not one of a deployment of one tenant.
# That of encryption is written out, for one key.
@pytest.mark.parametrize("name", sorted({*POLICIES} - {"tenants", "encryption"}))
def test_policies_are_those_of_deploy_iam(name: str) -> None:
    """With the names of this account; held to a tenant if there is one."""
    text = json.dumps(policy(name), sort_keys=True)
    ours = text.replace(
        "arn:aws:dynamodb:*:*:table/", "arn:aws:dynamodb:eu-central-1:123456789012:table/"
    ).replace("arn:aws:s3:::chatserver", "arn:aws:s3:::chatserver-123456789012-eu-central-1")
    alone = json.loads(ours.replace("${aws:PrincipalTag/tenant}/*", "*"))
    for statement in alone["Statement"]:
        statement.pop("Condition", None)

    def made(cloud: str) -> Any:
        return json.loads(evaluated(cloud)[f'aws_iam_policy.this["{name}"]']["policy"])

    assert made("terraform-provisioned") == json.loads(ours)
    assert made("terraform-default") == alone
    assert "${" not in json.dumps(made("terraform-default"))


def test_roles_may_use_the_key_of_encryption_for_their_tenant_only() -> None:
    """The same rights as in deploy/iam, on one key; none without a key."""
    (ours,) = policy("encryption")["Statement"]
    cloud = evaluated("terraform-provisioned")
    tenant = cloud['aws_iam_role.this["api"]']["tags"]["tenant"]
    for role in ("api", "worker", "archive", "operator"):
        text = cloud[f'aws_iam_role_policy.encryption["{role}"]']["policy"]
        (made,) = json.loads(text)["Statement"]
        assert made["Action"] == ours["Action"]
        assert made["Resource"] == ["arn:aws:kms:eu-central-1:123456789012:key/2"]
        assert made["Condition"] == {"StringEquals": {"kms:EncryptionContext:tenant": tenant}}
    assert not any("role_policy.encryption" in name for name in evaluated("terraform-default"))


def test_roles_have_the_policies_that_their_processes_need() -> None:
    """None for gateways, no Scan for who serves, for service accounts of the chart alone."""
    cloud = evaluated("terraform-provisioned")
    has: dict[str, set[str]] = {}
    for address in cloud:
        if match := re.match(r'aws_iam_role_policy_attachment.this\["(\w+)-(\w+)"\]', address):
            has.setdefault(match[1], set()).add(match[2])

    assert has == {
        "api": {"processes"},
        "worker": {"processes"},
        "archive": {"processes", "archive"},
        "operator": {"processes", "operator"},
    }
    for role in has:
        arguments = cloud[f'aws_iam_role.this["{role}"]']
        (trust,) = json.loads(arguments["assume_role_policy"])["Statement"]
        subject = trust["Condition"]["StringEquals"]["oidc.example.com/id/A:sub"]
        assert subject == f"system:serviceaccount:chat:chat-chatserver-{role}"
        assert arguments["tags"] == {"tenant": "acme"}


def test_bucket_keeps_what_is_read_where_it_can_be_read() -> None:
    """Our rules as `tables apply` has them; archived messages go nowhere that takes hours."""
    cloud = evaluated("terraform-default")
    rules = cloud["aws_s3_bucket_lifecycle_configuration.this"]["rule"]

    def as_asked(rule: dict[str, Any]) -> dict[str, Any]:
        asked = {"Status": rule["status"], "Filter": {"Prefix": rule["filter"]["prefix"]}}
        if expiration := rule.get("expiration"):
            asked["Expiration"] = {"Days": expiration["days"]}
        if parts := rule.get("abort_incomplete_multipart_upload"):
            days = parts["days_after_initiation"]
            asked["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": days}
        return asked

    ours = [as_asked(rule) for rule in rules[:3]]
    wanted = [{**rule} for rule in _lifecycle("", Cold())]
    ids = [rule.pop("ID") for rule in wanted]

    assert ours == wanted
    assert re.findall(r'^ +id += "(chatserver-\w+)', source(), re.MULTILINE)[1:] == ids
    assert [rule["transition"]["storage_class"] for rule in rules if "transition" in rule] == [
        "GLACIER_IR"
    ]
    assert '"GLACIER"' not in source()
    assert '"DEEP_ARCHIVE"' not in source()
    block = cloud["aws_s3_bucket_public_access_block.this"]
    assert [value for name, value in block.items() if name != "bucket"] == [True] * 4


def test_outputs_name_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are named like settings, and Redis has the rights from docs/security.md."""
    names = set(re.findall(r"\b(CHAT_[A-Z0-9_]+)\s+= ", source()))
    values = {"CHAT_WARM_BILLING": "on_demand", "CHAT_ARCHIVE_REMOVAL": "worker"}
    values |= {"CHAT_COLD_ORIGINS": "[]", "CHAT_REDIS_PARTITIONS": "64"}
    values |= {"CHAT_REDIS_CLUSTER": "true", "CHAT_WARM_STREAM": "false"}
    with given_settings(monkeypatch, {name: values.get(name, "abc") for name in names}):
        assert load_settings().redis.partitions == 64

    document = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rights = re.search(r"ACL SETUSER chat (on .*?)```", document, re.DOTALL)
    assert rights is not None
    wanted = set(rights[1].split()) - {">password", "resetkeys", "+config|get"}
    for kind, name in (("memorydb", "default"), ("elasticache", "provisioned")):
        user = evaluated(f"terraform-{name}")[f"aws_{kind}_user.chat[0]"]
        assert set(user["access_string"].split()) == wanted
