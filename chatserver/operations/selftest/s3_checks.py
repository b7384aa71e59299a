"""Self-test checks of S3, on objects below the run's own prefix."""

from __future__ import annotations

import hashlib
import os
from typing import Final

import attrs

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.errors import Conflict
from chatserver.operations.selftest.model import CheckFailed, SelftestCheck, require

STORE: Final = "s3"
KEY: Final = "checks/object"
SIZE: Final = 300_000


@attrs.define(eq=False, repr=False)
class S3Checks:
    _store: ObjectStore

    def list_checks(self) -> list[SelftestCheck]:
        return [
            SelftestCheck(STORE, "put, get and delete", self._check_put_and_get),
            SelftestCheck(STORE, "list after put", self._check_list),
            SelftestCheck(STORE, "conditional put", self._check_conditional_put),
        ]

    async def _check_put_and_get(self) -> str:
        body = os.urandom(SIZE)
        await self._store.call("put_object", Key=KEY, Body=body)
        data = await self._store.read(KEY, size_max=SIZE)
        is_same = hashlib.sha256(data).digest() == hashlib.sha256(body).digest()
        require(is_same, "the object differs from what was written")
        await self._store.call("delete_object", Key=KEY)
        try:
            await self._store.call("head_object", Key=KEY)
        except ObjectMissing:
            return f"{SIZE} bytes"
        raise CheckFailed("a deleted object is still there")

    async def _check_list(self) -> str:
        keys = [f"checks/list/{number:02d}" for number in range(5)]
        for key in keys:
            await self._store.call("put_object", Key=key, Body=b"x")
        page = await self._store.call("list_objects_v2", Prefix="checks/list/")
        listed = [s3_object["Key"] for s3_object in page.get("Contents", [])]
        require(listed == keys, f"the listing returned {listed}")
        return f"{len(keys)} objects, in order"

    async def _check_conditional_put(self) -> str:
        await self._store.call("put_object", Key=KEY, Body=b"first", IfNoneMatch="*")
        try:
            await self._store.call("put_object", Key=KEY, Body=b"second", IfNoneMatch="*")
        except Conflict:
            require(await self._store.read(KEY, size_max=100) == b"first", "it was overwritten")
            return "a second put is refused"
        raise CheckFailed("an object was overwritten despite If-None-Match")
