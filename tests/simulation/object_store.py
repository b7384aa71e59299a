"""Simulated S3: objects in memory behind the product's `ObjectStore`, with errors and delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self, cast

import aiohttp
import msgspec
import zstandard
from botocore.exceptions import ClientError

from chatserver.cold.client import ObjectStore, _Clients
from chatserver.config import Cold
from tests.simulation.loop import SimulatedLoop

DELAY_S = (0.002, 0.03)


class Objects:
    """The bucket, and the condition of its server."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.contents: dict[str, bytes] = {}
        self.requests = 0
        self.repair()

    def repair(self) -> None:
        """End all faults."""
        self.is_down = False
        self.failure_share = 0.0

    async def exchange(self) -> bool:
        """Wait for a request to arrive; return whether its response will be lost.

        Raises:
            aiohttp.ClientError, ClientError: the request fails.
        """
        rng = self.loop.rng
        self.requests += 1
        await asyncio.sleep(rng.uniform(*DELAY_S))
        if self.is_down:
            raise aiohttp.ClientConnectionError("connection refused")
        if rng.random() >= self.failure_share:
            return False
        if rng.random() < 0.5:
            return True
        raise make_error("SlowDown", 503)

    def read_archive(self, chat: str) -> list[dict[str, Any]]:
        """Return a chat's entries, each from its newest segment, without the product's code."""
        newest: dict[int, dict[str, Any]] = {}
        for key, data in self.contents.items():
            if not key.startswith(f"archive/v1/{chat}/"):
                continue
            lines = zstandard.ZstdDecompressor().decompress(data).splitlines()
            for entry in map(msgspec.json.decode, lines[1:]):
                known = newest.get(entry["seq"])
                if known is None or known.get("rev", 0) <= entry.get("rev", 0):
                    newest[entry["seq"]] = entry
        return list(newest.values())


def make_error(code: str, status: int) -> ClientError:
    """Return an error response."""
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(cast(Any, response), "simulated")


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return self._data


class SimulatedSdk:
    """The operations of the SDK's client that the archive and long bodies use."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def put_object(self, *, Key: str, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        is_lost = await self._objects.exchange()
        self._objects.contents[Key] = bytes(Body)
        return _respond({}, is_lost=is_lost)

    async def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        is_lost = await self._objects.exchange()
        data = self._objects.contents.get(Key)
        if data is None:
            raise make_error("NoSuchKey", 404)
        return _respond({"ContentLength": len(data), "Body": _Body(data)}, is_lost=is_lost)

    async def delete_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        is_lost = await self._objects.exchange()
        self._objects.contents.pop(Key, None)
        return _respond({}, is_lost=is_lost)

    async def list_objects_v2(self, *, Prefix: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        is_lost = await self._objects.exchange()
        keys = sorted(key for key in self._objects.contents if key.startswith(Prefix))
        return _respond({"Contents": [{"Key": key} for key in keys]}, is_lost=is_lost)


def _respond(response: dict[str, Any], *, is_lost: bool) -> dict[str, Any]:
    if is_lost:
        raise aiohttp.ServerDisconnectedError
    return response


class SimulatedStore(ObjectStore):
    """The product's client on the simulated bucket."""

    def __init__(self, objects: Objects, settings: Cold, stack: contextlib.AsyncExitStack) -> None:
        super().__init__(settings, stack)
        sdk = cast(Any, SimulatedSdk(objects))
        self._clients = _Clients(sdk, sdk)


@contextlib.asynccontextmanager
async def open_simulated_s3(objects: Objects, settings: Cold) -> AsyncIterator[ObjectStore]:
    """Replacement of `open_s3`."""
    async with contextlib.AsyncExitStack() as stack:
        yield SimulatedStore(objects, settings, stack)
