"""S3 bucket configuration: CORS rules for web clients and lifecycle rules.

Rules of other applications are kept. The ids of our rules begin with ``chatserver-``. The ids of a
tenant's own rules end with the tenant's name. Objects below ``uploads/`` are temporary: they are
copied to another key after inspection.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final, Literal, NamedTuple

from chatserver.cold.client import BucketMissing, ObjectMissing, ObjectStore
from chatserver.config import Cold
from chatserver.errors import CorruptData

UPLOADS_PREFIX: Final = "uploads/"
EXPORTS_PREFIX: Final = "exports/"
_OURS = "chatserver-"
_OF_TENANT: Final = ("pages", "uploads", "exports")
_NO_RULES = ("NoSuchCORSConfiguration", "NoSuchLifecycleConfiguration")


class BucketChange(NamedTuple):
    """A result of `apply_bucket`. `action` is "kept" if nothing was changed."""

    action: Literal["created", "changed", "kept"]
    what: str


async def apply_bucket(store: ObjectStore, settings: Cold) -> list[BucketChange]:
    """Create the bucket and our CORS and lifecycle rules; return what was done.

    Guarantees:
        Idempotent: a second call changes nothing.
        Nothing is removed, and no rule of other applications is changed.
    """
    changes = [BucketChange(await _make_bucket(store, settings), "bucket")]
    existing = await _find_rules(store, "get_bucket_cors", "CORSRules")
    desired = [_make_cors_rule(settings)] if settings.origins else []
    if (rules := _merge(existing, desired)) is not None:
        await store.call("put_bucket_cors", CORSConfiguration={"CORSRules": rules})
        changes.append(
            BucketChange("changed", f"CORS rule for pages: {', '.join(settings.origins)}")
        )
    existing = await _find_rules(store, "get_bucket_lifecycle_configuration", "Rules")
    if (rules := _merge(existing, _make_lifecycle_rules(store.prefix, settings))) is not None:
        lifecycle = {"Rules": rules}
        await store.call("put_bucket_lifecycle_configuration", LifecycleConfiguration=lifecycle)
        changes.append(BucketChange("changed", "expiry of unfinished uploads"))
    return changes


async def find_missing_rules(store: ObjectStore, settings: Cold) -> list[str]:
    """Return descriptions of the CORS and lifecycle rules that are missing or differ."""
    missing = []
    rules = await _find_rules(store, "get_bucket_cors", "CORSRules")
    desired = [_make_cors_rule(settings)] if settings.origins else []
    if _merge(rules, desired) is not None:
        missing.append(f"web pages at {', '.join(settings.origins)} may not upload")
    rules = await _find_rules(store, "get_bucket_lifecycle_configuration", "Rules")
    if _merge(rules, _make_lifecycle_rules(store.prefix, settings)) is not None:
        missing.append("unfinished uploads, exports and parts are not deleted")
    return missing


async def find_rules_of_tenant(store: ObjectStore, settings: Cold) -> list[str]:
    """Return the ids of the bucket rules that belong only to this tenant."""
    own_ids = {_build_rule_id(rule, settings) for rule in _OF_TENANT}
    rules = [
        *await _find_rules(store, "get_bucket_cors", "CORSRules"),
        *await _find_rules(store, "get_bucket_lifecycle_configuration", "Rules"),
    ]
    return [rule["ID"] for rule in rules if rule.get("ID") in own_ids]


async def list_tenants_with_rules(store: ObjectStore) -> list[str]:
    """Return the tenants for which `tables apply` has been run on this bucket."""
    rules = await _find_rules(store, "get_bucket_lifecycle_configuration", "Rules")
    start = f"{_OURS}uploads-"
    return [rule["ID"].removeprefix(start) for rule in rules if rule["ID"].startswith(start)]


async def remove_rules_of_tenant(store: ObjectStore, settings: Cold) -> int:
    """Remove the bucket rules that belong only to this tenant; return their number. Idempotent."""
    own_ids = {_build_rule_id(rule, settings) for rule in _OF_TENANT}
    removed = 0
    for operation, name, configuration in (
        ("bucket_cors", "CORSRules", "CORSConfiguration"),
        ("bucket_lifecycle_configuration", "Rules", "LifecycleConfiguration"),
    ):
        rules = await _find_rules(store, f"get_{operation}", name)
        remaining = [rule for rule in rules if rule.get("ID") not in own_ids]
        if len(remaining) == len(rules):
            continue
        removed += len(rules) - len(remaining)
        if remaining:
            await store.call(f"put_{operation}", **{configuration: {name: remaining}})
        else:
            await store.call(f"delete_{operation.removesuffix('_configuration')}")
    return removed


async def _make_bucket(store: ObjectStore, settings: Cold) -> Literal["created", "kept"]:
    # HEAD on a missing bucket returns 404 without an error code; `call` raises `ObjectMissing`.
    with contextlib.suppress(BucketMissing, ObjectMissing):
        await store.call("head_bucket")
        return "kept"
    region = settings.region
    # AWS rejects its default region as a LocationConstraint.
    options = {} if region == "us-east-1" else {"LocationConstraint": region}
    await store.call("create_bucket", **({"CreateBucketConfiguration": options} if options else {}))
    return "created"


async def _find_rules(store: ObjectStore, operation: str, name: str) -> list[dict[str, Any]]:
    try:
        rules: list[dict[str, Any]] = (await store.call(operation))[name]
    except CorruptData as exc:
        if any(code in exc.message for code in _NO_RULES):
            return []
        raise
    return rules


def _merge(
    existing: list[dict[str, Any]], desired: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return `existing` with the `desired` rules added or replaced; None if nothing changes."""
    names = {rule["ID"] for rule in desired}
    ours = [rule for rule in existing if rule.get("ID") in names]
    if not desired or _normalize(ours) == _normalize(desired):
        return None
    return [rule for rule in existing if rule not in ours] + desired


def _normalize(rules: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for rule in rules)


def _build_rule_id(rule: str, settings: Cold) -> str:
    return f"{_OURS}{rule}-{settings.tenant}" if settings.tenant else f"{_OURS}{rule}"


def _make_cors_rule(settings: Cold) -> dict[str, Any]:
    return {
        "ID": _build_rule_id("pages", settings),
        "AllowedOrigins": settings.origins,
        "AllowedMethods": ["GET", "POST"],
        "AllowedHeaders": ["*"],
        "MaxAgeSeconds": 600,
    }


def _make_lifecycle_rules(prefix: str, settings: Cold) -> list[dict[str, Any]]:
    return [
        {
            "ID": _build_rule_id("uploads", settings),
            "Status": "Enabled",
            "Filter": {"Prefix": prefix + UPLOADS_PREFIX},
            "Expiration": {"Days": 2},
        },
        {
            # Workers normally delete exports; this rule deletes the ones that they missed.
            "ID": _build_rule_id("exports", settings),
            "Status": "Enabled",
            "Filter": {"Prefix": prefix + EXPORTS_PREFIX},
            "Expiration": {"Days": 31},
        },
        {
            # One rule for the whole bucket, because several tenants can share a bucket.
            "ID": f"{_OURS}parts",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        },
    ]
