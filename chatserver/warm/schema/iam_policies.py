"""IAM policies for the processes of one tenant, generated from the table definitions.

One set of policies serves all tenants: the role tag ``tenant`` names the tenant, and
``dynamodb:LeadingKeys`` allows only partitions with that prefix, in tables and indexes. AWS checks
the partition key of a Query, and of each item in a batch or transaction. A Scan has no partition
key and cannot be limited to a tenant, so separate policies allow it.

The ``Null`` condition is needed because ``ForAllValues`` is also true for an empty set.

``python -m deploy.documents.schema_documents iam-<name>`` prints the files in ``deploy/iam``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from chatserver.config import Cold, Warm
from chatserver.warm.dynamo.tenancy import SEPARATOR
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, TABLES, TableSchema

TENANT: Final = "${aws:PrincipalTag/tenant}"


def _name_same(*operations: str) -> dict[str, tuple[str, ...]]:
    """Return the IAM actions of operations that have the same name."""
    return {each: ("".join(map(str.capitalize, each.split("_"))),) for each in operations}


# IAM actions required by each SDK operation.
ITEM_ACTIONS: Final = {
    **_name_same("batch_get_item", "batch_write_item", "delete_item", "get_item", "put_item"),
    **_name_same("query", "update_item"),
    "transact_get_items": ("GetItem",),
    "transact_write_items": ("ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem"),
}
SCAN_ACTIONS: Final = _name_same("scan")
STREAM_ACTIONS: Final = _name_same(
    "describe_stream", "get_records", "get_shard_iterator", "list_streams"
)
TABLE_ACTIONS: Final = _name_same(
    "create_table",
    "describe_continuous_backups",
    "describe_table",
    "describe_time_to_live",
    "update_table",
    "update_time_to_live",
)
OBJECT_ACTIONS: Final = {
    **_name_same("abort_multipart_upload", "delete_object", "get_object", "put_object"),
    "complete_multipart_upload": ("PutObject",),
    "copy_object": ("GetObject", "PutObject"),
    "create_multipart_upload": ("PutObject",),
    "head_object": ("GetObject",),
    "upload_part": ("PutObject",),
}
LIST_ACTIONS: Final = {
    "list_multipart_uploads": ("ListBucketMultipartUploads",),
    "list_objects_v2": ("ListBucket",),
}
# These actions delete a tenant, including old versions of its objects. Only `chatserver tenants` is
# allowed to delete old versions.
VERSION_ACTIONS: Final = {"delete_objects": ("DeleteObject", "DeleteObjectVersion")}
VERSION_LIST_ACTIONS: Final = {"list_object_versions": ("ListBucketVersions",)}
BUCKET_ACTIONS: Final = {
    **_name_same("create_bucket", "get_bucket_versioning"),
    "get_bucket_cors": ("GetBucketCORS",),
    "get_bucket_lifecycle_configuration": ("GetLifecycleConfiguration",),
    "head_bucket": ("ListBucket",),
    "put_bucket_cors": ("PutBucketCORS",),
    "put_bucket_lifecycle_configuration": ("PutLifecycleConfiguration",),
}
KEY_ACTIONS: Final = _name_same("decrypt", "encrypt", "generate_data_key")


def _list_actions(service: str, of_operations: Mapping[str, tuple[str, ...]]) -> list[str]:
    return sorted(
        {f"{service}:{action}" for actions in of_operations.values() for action in actions}
    )


def _list_arns(tables: Sequence[TableSchema], *, with_indexes: bool) -> list[str]:
    arns: list[str] = []
    for table in tables:
        arn = f"arn:aws:dynamodb:*:*:table/{table.name_in(Warm())}"
        arns.append(arn)
        if with_indexes:
            arns += [f"{arn}/index/{index.name}" for index in table.indexes]
    return arns


def _build_item_statement() -> dict[str, Any]:
    return {
        "Sid": "OwnItems",
        "Effect": "Allow",
        "Action": _list_actions("dynamodb", ITEM_ACTIONS),
        "Resource": _list_arns(TABLES, with_indexes=True),
        "Condition": {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{TENANT}{SEPARATOR}*"]},
            "Null": {"dynamodb:LeadingKeys": "false", "aws:PrincipalTag/tenant": "false"},
        },
    }


def _build_object_statements() -> list[dict[str, Any]]:
    bucket = f"arn:aws:s3:::{Cold().bucket}"
    below = f"{TENANT}{SEPARATOR}*"
    return [
        {
            "Sid": "OwnObjects",
            "Effect": "Allow",
            "Action": _list_actions("s3", OBJECT_ACTIONS),
            "Resource": [f"{bucket}/{below}"],
        },
        {
            "Sid": "OwnLists",
            "Effect": "Allow",
            "Action": _list_actions("s3", LIST_ACTIONS),
            "Resource": [bucket],
            "Condition": {"StringLike": {"s3:prefix": [below]}},
        },
    ]


def _build_scan_statement(tables: Sequence[TableSchema]) -> dict[str, Any]:
    return {
        "Sid": "ScansOfAllTenants",
        "Effect": "Allow",
        "Action": _list_actions("dynamodb", SCAN_ACTIONS),
        "Resource": _list_arns(tables, with_indexes=False),
    }


def _build_stream_statement() -> dict[str, Any]:
    return {
        "Sid": "StreamOfAllTenants",
        "Effect": "Allow",
        "Action": _list_actions("dynamodb", STREAM_ACTIONS),
        "Resource": [f"{arn}/stream/*" for arn in _list_arns([MESSAGES], with_indexes=False)],
    }


def _build_all_tenants_statements() -> list[dict[str, Any]]:
    bucket = f"arn:aws:s3:::{Cold().bucket}"
    return [
        {
            "Sid": "AllItems",
            "Effect": "Allow",
            "Action": _list_actions("dynamodb", ITEM_ACTIONS | SCAN_ACTIONS),
            "Resource": _list_arns(TABLES, with_indexes=True),
        },
        {
            "Sid": "AllObjects",
            "Effect": "Allow",
            "Action": _list_actions("s3", OBJECT_ACTIONS | VERSION_ACTIONS),
            "Resource": [f"{bucket}/*"],
        },
        {
            "Sid": "AllLists",
            "Effect": "Allow",
            "Action": _list_actions("s3", LIST_ACTIONS | VERSION_LIST_ACTIONS | BUCKET_ACTIONS),
            "Resource": [bucket],
        },
    ]


def _build_key_statement() -> dict[str, Any]:
    return {
        "Sid": "OwnDataKeys",
        "Effect": "Allow",
        "Action": _list_actions("kms", KEY_ACTIONS),
        "Resource": ["arn:aws:kms:*:*:key/*"],
        # `chatserver.encryption.key_ring` sets this encryption context in calls to KMS.
        "Condition": {
            "StringEquals": {"kms:EncryptionContext:tenant": TENANT},
            "Null": {"aws:PrincipalTag/tenant": "false"},
        },
    }


def make_policy(name: str) -> dict[str, Any]:
    """Return the policy for `name`, one of `POLICIES`."""
    statements: list[dict[str, Any]]
    if name == "processes":
        statements = [_build_item_statement(), *_build_object_statements()]
    elif name == "tenants":
        statements = _build_all_tenants_statements()
    elif name == "archive":
        statements = [_build_scan_statement([DIRECTORY]), _build_stream_statement()]
    elif name == "encryption":
        statements = [_build_key_statement()]
    else:
        assert name == "operator"
        statements = [
            _build_scan_statement(TABLES),
            {
                "Sid": "Tables",
                "Effect": "Allow",
                "Action": _list_actions("dynamodb", TABLE_ACTIONS),
                "Resource": _list_arns(TABLES, with_indexes=True),
            },
            {
                "Sid": "Bucket",
                "Effect": "Allow",
                "Action": _list_actions("s3", BUCKET_ACTIONS),
                "Resource": [f"arn:aws:s3:::{Cold().bucket}"],
            },
        ]
    return {"Version": "2012-10-17", "Statement": statements}


# `processes`: for API and worker processes. `archive`: in addition, for archive workers.
# `operator`: for the command line. `tenants`: for `chatserver tenants`, which accesses all tenants.
# `encryption`: in addition to any of these, if `encryption.provider` is kms.
POLICIES: Final = ("processes", "archive", "operator", "tenants", "encryption")
