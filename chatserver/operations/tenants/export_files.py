"""Files of an export, in a directory or under a prefix in an S3 bucket.

::

    manifest.json                        counts, and SHA-256 of each file; written last
    state.json                           progress; exists until the manifest does
    dynamodb/<table>-<n>.jsonl.zst       items in DynamoDB JSON, without the tenant prefix
    redis/keys-<n>.jsonl.zst             keys with type, TTL and value
    objects-<n>.jsonl.zst                index: key, SHA-256, bytes, type and metadata of objects
    objects/<key>                        the objects, unchanged
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Cold
from chatserver.errors import ConfigError, CorruptData, NotFound

MANIFEST: Final = "manifest.json"
STATE: Final = "state.json"
FORMAT: Final = 1
FILE_BYTES_MAX: Final = 256 * 2**20  # maximum size of a file, both before and after compression
ITEMS_BYTES: Final = 8 * 2**20  # uncompressed size after which a new file is started
COPY_BYTES_MAX: Final = 5 * 2**30  # maximum size of an object for CopyObject, an AWS limit

_S3_URL: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.*)")


class ExportedFile(msgspec.Struct, frozen=True):
    """Manifest entry for one of the export's `.jsonl.zst` files."""

    name: str
    sha256: str
    bytes: int
    lines: int


class ExportedObject(msgspec.Struct, frozen=True):
    """An object's line in the index."""

    key: str
    sha256: str
    bytes: int
    type: str = "binary/octet-stream"
    metadata: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True):
    """Contents of an export. `counts`: items per table, number of `objects`, keys in `redis`."""

    format: int
    tenant: str
    started: str
    finished: str
    is_blocked: bool
    unpersisted: int
    counts: dict[str, int]
    object_bytes: int
    files: list[ExportedFile]


class Target(abc.ABC):
    """The directory or bucket prefix with the files of an export. Writes are atomic."""

    @abc.abstractmethod
    async def write(self, name: str, content: bytes) -> None: ...

    @abc.abstractmethod
    async def read(self, name: str) -> bytes:
        """Return a file. Raises NotFound."""

    @abc.abstractmethod
    async def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    @abc.abstractmethod
    async def copy_in(self, source: ObjectStore, key: str) -> tuple[str, int]:
        """Copy an object from `source` to ``objects/<key>``; return its SHA-256 and size."""

    @abc.abstractmethod
    def iter_object(self, key: str) -> AsyncGenerator[bytes]:
        """Yield the content of ``objects/<key>``. Raises NotFound."""


class DirectoryTarget(Target):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, name: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, self._resolve(name), content)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    async def read(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread(self._resolve(name).read_bytes)
        except FileNotFoundError as exc:
            raise NotFound(f"export: {name} is missing") from exc

    async def delete(self, name: str) -> None:
        await asyncio.to_thread(self._resolve(name).unlink, missing_ok=True)

    async def copy_in(self, source: ObjectStore, key: str) -> tuple[str, int]:
        path = self._resolve(f"objects/{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        new = path.with_name(path.name + ".new")
        async with contextlib.aclosing(source.iter_content(key)) as pieces:
            with new.open("wb") as file:
                async for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
        new.replace(path)
        return digest.hexdigest(), size

    async def iter_object(self, key: str) -> AsyncGenerator[bytes]:
        try:
            file = self._resolve(f"objects/{key}").open("rb")
        except FileNotFoundError as exc:
            raise NotFound(f"export: objects/{key} is missing") from exc
        with file:
            while piece := file.read(2**20):
                yield piece

    def _resolve(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise CorruptData(f"export: {name!r} is outside of the directory")
        return path


class BucketTarget(Target):
    """A prefix in a bucket, accessed with the process's credentials."""

    def __init__(self, bucket: ObjectStore, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    async def write(self, name: str, content: bytes) -> None:
        await self._bucket.call("put_object", Key=self._prefix + name, Body=content)

    async def read(self, name: str) -> bytes:
        return await self._bucket.read(self._prefix + name, size_max=FILE_BYTES_MAX)

    async def delete(self, name: str) -> None:
        await self._bucket.call("delete_object", Key=self._prefix + name)

    async def copy_in(self, source: ObjectStore, key: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        async with contextlib.aclosing(source.iter_content(key)) as pieces:
            async for piece in pieces:
                digest.update(piece)
                size += len(piece)
        if size > COPY_BYTES_MAX:
            raise CorruptData(f"export: {key} has more than {COPY_BYTES_MAX} bytes")
        copy_source = {"Bucket": source.bucket, "Key": source.prefix + key}
        await self._bucket.call(
            "copy_object", Key=f"{self._prefix}objects/{key}", CopySource=copy_source
        )
        return digest.hexdigest(), size

    async def iter_object(self, key: str) -> AsyncGenerator[bytes]:
        pieces = self._bucket.iter_content(f"{self._prefix}objects/{key}")
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece


@contextlib.asynccontextmanager
async def open_target(target: str, settings: Cold) -> AsyncIterator[Target]:
    """Open a directory, or ``s3://bucket/prefix``.

    Raises:
        ConfigError: the URL is invalid.
    """
    if not target.startswith("s3://"):
        yield DirectoryTarget(Path(target))
        return
    match = _S3_URL.fullmatch(target)
    if match is None:
        raise ConfigError(f"{target}: must be s3://bucket/prefix")
    options = {"bucket": match[1], "tenant": ""}
    async with open_s3(settings.model_copy(update=options)) as bucket:
        yield BucketTarget(bucket, match[2])


def compress_lines(lines: list[bytes]) -> bytes:
    """Compress lines. CPU-bound: do not call on an event loop."""
    return zstandard.ZstdCompressor(level=6, write_checksum=True).compress(
        b"\n".join([*lines, b""])
    )


def decompress_lines(content: bytes, name: str) -> list[bytes]:
    """Return the lines of a file. CPU-bound: do not call on an event loop.

    Raises:
        CorruptData: the file is not valid zstd, or too long.
    """
    try:
        raw = zstandard.ZstdDecompressor().decompress(content, max_output_size=FILE_BYTES_MAX)
    except zstandard.ZstdError as exc:
        raise CorruptData(f"export: {name}: {exc}") from exc
    return raw.splitlines()


async def read_manifest(target: Target) -> Manifest:
    """Return the manifest of a finished export.

    Raises:
        NotFound: there is no finished export.
        CorruptData: the manifest is not readable.
    """
    try:
        manifest: Manifest = decode(await target.read(MANIFEST), Manifest, MANIFEST)
    except NotFound as exc:
        raise NotFound(
            "export: is not finished (no manifest.json); run `chatserver tenants export` again"
        ) from exc
    return manifest


def decode(content: bytes, kind: Any, name: str) -> Any:
    """Decode JSON. Raises CorruptData."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        raise CorruptData(f"export: {name}: {exc}") from exc
