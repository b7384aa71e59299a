"""How much the bucket holds, by what it is for: the first part of its objects' names."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from chatserver.cold.client import ObjectStore

PAGE: Final = 1000  # AWS: a listing's page


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Objects below a prefix, and their bytes together."""

    prefix: str
    objects: int
    bytes: int


async def list_held(store: ObjectStore, objects_max: int) -> tuple[list[Held], bool]:
    """Return what is held, by prefix, and whether that is all: at most `objects_max` are looked at.

    Guarantees:
        Cost: a LIST for each 1,000 objects. With a tenant, of its own objects alone.

    Raises:
        Unavailable: S3 does not answer.
        ConfigError: the bucket, or the right to list it, is absent.
    """
    found: dict[str, tuple[int, int]] = {}
    request: dict[str, Any] = {"MaxKeys": PAGE}
    seen = 0
    while True:
        answer = await store.call("list_objects_v2", **request)
        for each in answer.get("Contents", ()):
            prefix = each["Key"].partition("/")[0]
            count, size = found.get(prefix, (0, 0))
            found[prefix] = (count + 1, size + int(each["Size"]))
            seen += 1
        token = answer.get("NextContinuationToken")
        if token is None or seen >= objects_max:
            held = [Held(prefix, *both) for prefix, both in sorted(found.items())]
            return held, token is None
        request["ContinuationToken"] = token
