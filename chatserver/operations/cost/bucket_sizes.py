"""Storage used in the S3 bucket, by the first component of the object keys."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from chatserver.cold.client import ObjectStore

PAGE: Final = 1000  # maximum keys per page of a listing, an AWS limit


@dataclasses.dataclass(frozen=True, slots=True)
class PrefixSize:
    """Number and total size of the objects below a prefix."""

    prefix: str
    objects: int
    bytes: int


async def list_prefix_sizes(store: ObjectStore, objects_max: int) -> tuple[list[PrefixSize], bool]:
    """Return `(sizes, is_complete)`: sizes by prefix. Stops after about `objects_max` objects.

    Guarantees:
        Cost: one LIST per 1,000 objects. With a tenant, only the tenant's objects are listed.

    Raises:
        Unavailable: S3 does not respond.
        ConfigError: the bucket does not exist or access is denied.
    """
    by_prefix: dict[str, tuple[int, int]] = {}
    request: dict[str, Any] = {"MaxKeys": PAGE}
    listed = 0
    while True:
        response = await store.call("list_objects_v2", **request)
        for s3_object in response.get("Contents", ()):
            prefix = s3_object["Key"].partition("/")[0]
            count, size = by_prefix.get(prefix, (0, 0))
            by_prefix[prefix] = (count + 1, size + int(s3_object["Size"]))
            listed += 1
        token = response.get("NextContinuationToken")
        if token is None or listed >= objects_max:
            sizes = [PrefixSize(prefix, *totals) for prefix, totals in sorted(by_prefix.items())]
            return sizes, token is None
        request["ContinuationToken"] = token
