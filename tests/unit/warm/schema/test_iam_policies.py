"""IAM policies: current, well formed, and allowing exactly the calls of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import msgspec
import pytest

from chatserver.warm.dynamo import metering
from chatserver.warm.schema import iam_policies
from chatserver.warm.schema.iam_policies import POLICIES, make_policy
from chatserver.warm.schema.tables import TABLES
from deploy.documents.schema_documents import encode_document

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "deploy" / "iam"
ARN = re.compile(
    r"arn:aws:(dynamodb:\*:\*:table/[\w.-]+(/index/\w+|/stream/\*)?|s3:::[\w.$:/{}*-]+|kms:\*:\*:key/\*)"
)
# These modules name operations without calling them.
MODULES_WITHOUT_CALLS = {"expressions.py", "metering.py", "policies.py", "tenancy.py"}


def operations_of(service: str) -> set[str]:
    """Return all operations of a service, by their SDK names."""
    model = botocore.session.get_session().get_service_model(service)
    return {botocore.xform_name(name) for name in model.operation_names}


def called_operations() -> set[str]:
    """Return the AWS operations that the code names in strings or methods."""
    known = operations_of("dynamodb") | operations_of("dynamodbstreams") | operations_of("s3")
    # The packages of the clients, and the workers.
    package = ROOT / "chatserver"
    found = words_in(package / "warm", package / "cold", ROOT / "workers") & known
    return found | (words_in(package / "encryption") & operations_of("kms"))


def words_in(*folders: Path) -> set[str]:
    """Return all strings and attributes in the modules of some folders."""
    found: set[str] = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        if path.name in MODULES_WITHOUT_CALLS:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Constant(value=str(word)) | ast.Attribute(attr=word):
                    found.add(word)
    return found


KNOWN = {
    "dynamodb": iam_policies.ITEM_ACTIONS
    | iam_policies.SCAN_ACTIONS
    | iam_policies.STREAM_ACTIONS
    | iam_policies.TABLE_ACTIONS,
    "s3": iam_policies.OBJECT_ACTIONS
    | iam_policies.LIST_ACTIONS
    | iam_policies.BUCKET_ACTIONS
    | iam_policies.VERSION_ACTIONS
    | iam_policies.VERSION_LIST_ACTIONS,
    "kms": iam_policies.KEY_ACTIONS,
}


@pytest.mark.parametrize("name", POLICIES)
def test_committed_policy_is_current(name: str) -> None:
    """A new table, index or operation needs new policies.

    If this fails, run `make docs`.
    """
    assert (FOLDER / f"{name}.json").read_bytes() == encode_document(f"iam-{name}")


@pytest.mark.parametrize("name", POLICIES)
def test_policy_is_well_formed(name: str) -> None:
    """The policies follow the grammar of IAM and its limit of 6,144 characters."""
    policy = make_policy(name)

    assert policy["Version"] == "2012-10-17"
    sids = [each["Sid"] for each in policy["Statement"]]
    assert len(sids) == len(set(sids))
    assert all(re.fullmatch(r"\w+", sid) for sid in sids)
    for each in policy["Statement"]:
        assert each.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert each["Effect"] == "Allow"
        service = each["Action"][0].partition(":")[0]
        assert all(re.fullmatch(rf"{service}:[A-Z]\w+", action) for action in each["Action"])
        assert all(ARN.fullmatch(arn) and f":{service}:" in arn for arn in each["Resource"])
    assert len(msgspec.json.encode(policy)) < 6_144


def test_policies_allow_exactly_the_operations_of_the_code() -> None:
    """A new operation needs an action in a policy."""
    called = called_operations()
    known = {name for operations in KNOWN.values() for name in operations}

    assert called == known
    allowed = {action for name in POLICIES for each in make_policy(name)["Statement"]
               for action in each["Action"]}  # fmt: skip
    assert allowed == {
        f"{service}:{action}"
        for service, operations in KNOWN.items()
        for actions in operations.values()
        for action in actions
    }
    assert called >= (metering.READS | metering.WRITES) - {"transact_get_items"}


def test_processes_access_items_only_by_leading_keys() -> None:
    """This holds for each table and index; a Scan has no leading key and is not allowed."""

    def statements() -> list[dict[str, Any]]:
        return list(make_policy("processes")["Statement"])

    (items,) = [each for each in statements() if each["Action"][0].startswith("dynamodb:")]
    indexes = sum(len(table.indexes) for table in TABLES)

    assert "dynamodb:Scan" not in items["Action"]
    assert len(items["Resource"]) == len(TABLES) + indexes
    assert items["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["${aws:PrincipalTag/tenant}/*"]},
        # Without any leading key, the condition above is true.
        "Null": {"dynamodb:LeadingKeys": "false", "aws:PrincipalTag/tenant": "false"},
    }
    for each in statements():
        if each is not items and "Condition" not in each:
            assert all("${aws:PrincipalTag/tenant}/" in arn for arn in each["Resource"])


def test_processes_cannot_delete_old_versions_of_objects() -> None:
    """Only the role of `chatserver tenants` may delete versions in a versioned bucket."""
    with_rights = {
        name
        for name in POLICIES
        for each in make_policy(name)["Statement"]
        if "s3:DeleteObjectVersion" in each["Action"]
    }

    assert with_rights == {"tenants"}
