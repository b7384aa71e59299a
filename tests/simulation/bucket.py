"""Objects of the simulated S3, and the operations that the product's processes use on them."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Callable
from typing import Any, Self, cast

from botocore.exceptions import ClientError


@dataclasses.dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and its metadata."""

    data: bytes
    content_type: str
    modified_s: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class Body:
    """The content of a response."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return self._data


def make_error(code: str, status: int) -> ClientError:
    """Return an error response."""
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(cast(Any, response), "simulated")


class Bucket:
    """One bucket. Each operation has the name, arguments and response of the SDK."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.objects: dict[str, StoredObject] = {}
        self._clock = clock

    def _get(self, key: str, code: str) -> StoredObject:
        if key not in self.objects:
            raise make_error(code, 404)
        return self.objects[key]

    def put_object(
        self,
        *,
        Key: str,
        Body: bytes,
        ContentType: str = "binary/octet-stream",
        IfMatch: str | None = None,
        IfNoneMatch: str | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Create or replace an object, under a condition."""
        if IfNoneMatch is not None and Key in self.objects:
            raise make_error("PreconditionFailed", 412)
        if IfMatch is not None and self._get(Key, "NoSuchKey").etag != IfMatch:
            raise make_error("PreconditionFailed", 412)
        self.objects[Key] = StoredObject(bytes(Body), ContentType, self._clock())
        return {"ETag": self.objects[Key].etag}

    def get_object(self, *, Key: str, Range: str | None = None, **_: Any) -> dict[str, Any]:
        """Return an object, or a range of its bytes."""
        found = self._get(Key, "NoSuchKey")
        data = found.data if Range is None else _cut(found.data, Range)
        return _describe(found) | {"ContentLength": len(data), "Body": Body(data)}

    def head_object(self, *, Key: str, **_: Any) -> dict[str, Any]:
        """Return the metadata of an object."""
        return _describe(self._get(Key, "404"))

    def delete_object(self, *, Key: str, **_: Any) -> dict[str, Any]:
        """Delete an object, if it exists."""
        self.objects.pop(Key, None)
        return {}

    def list_objects_v2(
        self,
        *,
        Prefix: str = "",
        MaxKeys: int = 1000,
        StartAfter: str = "",
        ContinuationToken: str = "",
        **_: Any,
    ) -> dict[str, Any]:
        """Return a page of objects in the order of their keys; the token is the last key."""
        start = max(StartAfter, ContinuationToken)
        keys = sorted(key for key in self.objects if key.startswith(Prefix) and key > start)
        page = keys[:MaxKeys]
        response: dict[str, Any] = {"KeyCount": len(page), "IsTruncated": len(keys) > len(page)}
        if page:
            response["Contents"] = [_list_entry(key, self.objects[key]) for key in page]
        if response["IsTruncated"]:
            response["NextContinuationToken"] = page[-1]
        return response


def _describe(found: StoredObject) -> dict[str, Any]:
    return {
        "ContentLength": len(found.data),
        "ContentType": found.content_type,
        "ETag": found.etag,
        "LastModified": datetime.datetime.fromtimestamp(found.modified_s, datetime.UTC),
    }


def _list_entry(key: str, found: StoredObject) -> dict[str, Any]:
    described = _describe(found)
    return {
        "Key": key,
        "Size": len(found.data),
        "ETag": described["ETag"],
        "LastModified": described["LastModified"],
    }


def _cut(data: bytes, text: str) -> bytes:
    """Return the bytes of a range such as ``bytes=0-9``, ``bytes=5-`` or ``bytes=-3``."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:  # a suffix can be satisfied by an empty object (RFC 9110)
        return data[max(0, len(data) - int(last)) :]
    part = data[int(first) : int(last) + 1 if last else None]
    if not part:
        raise make_error("InvalidRange", 416)
    return part
