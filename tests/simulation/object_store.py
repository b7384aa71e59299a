"""Simulated S3: objects in memory behind the product's `ObjectStore`, with errors and delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import msgspec
import zstandard

from chatserver.cold.client import ObjectStore, _Clients
from chatserver.config import Cold
from tests.simulation.bucket import Bucket, make_error
from tests.simulation.loop import SimulatedLoop

DELAY_S = (0.002, 0.03)


class Objects:
    """The bucket, and the condition of its server."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.bucket = Bucket(lambda: loop.now)
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
        for key, found in self.bucket.objects.items():
            if not key.startswith(f"archive/v1/{chat}/"):
                continue
            lines = zstandard.ZstdDecompressor().decompress(found.data).splitlines()
            for entry in map(msgspec.json.decode, lines[1:]):
                known = newest.get(entry["seq"])
                if known is None or known.get("rev", 0) <= entry.get("rev", 0):
                    newest[entry["seq"]] = entry
        return list(newest.values())


class SimulatedSdk:
    """The SDK's client, with the operations of `Bucket`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def __getattr__(self, name: str) -> Any:
        run = getattr(self._objects.bucket, name)

        async def call(**request: Any) -> dict[str, Any]:
            is_lost = await self._objects.exchange()
            response: dict[str, Any] = run(**request)
            if is_lost:
                raise aiohttp.ServerDisconnectedError
            return response

        return call


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
