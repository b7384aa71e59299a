"""The simulated S3 answers like the development server: random requests, compared."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.errors import ChatError
from tests.integration.features.attachments.support import cold_settings
from tests.simulation.object_store import Objects, SimulatedStore

REQUESTS = 150
KEYS = ("a/1", "a/2", "a/20", "a/3/x", "b/1", "b/ü €", "c")
PREFIXES = ("", "a/", "a/2", "b/", "none/")
# Response fields that do not depend on time or on the server.
FIELDS = ("ETag", "ContentLength", "ContentType", "KeyCount", "IsTruncated")
# The type of an object that was put without one: AWS and the simulation, the development server.
DEFAULT_TYPES = ("binary/octet-stream", "application/octet-stream")


class InstantObjects(Objects):
    """The simulated server without delays, on any event loop."""

    def __init__(self) -> None:
        super().__init__(SimulatedClock())  # type: ignore[arg-type]  # only its time is used

    async def exchange(self) -> bool:
        return False


class SimulatedClock:
    """The part of the loop that the bucket uses."""

    now = 1_000.0


Request = tuple[str, dict[str, Any]]


def draw_requests(seed: int) -> Iterator[Request]:
    """Yield random requests in the forms that the product uses."""
    rng, etags = random.Random(seed), ['"00000000000000000000000000000000"']
    for _ in range(REQUESTS):
        key = rng.choice(KEYS)
        match rng.choice(("put", "put", "put_if", "get", "part", "head", "delete", "list", "list")):
            case "put":
                body = rng.randbytes(rng.choice((0, 1, 10, 300)))
                yield "put_object", {"Key": key, "Body": body, "ContentType": "application/zstd"}
            case "put_if":
                condition = rng.choice(({"IfNoneMatch": "*"}, {"IfMatch": rng.choice(etags)}))
                yield "put_object", {"Key": key, "Body": b"new", **condition}
            case "get":
                yield "get_object", {"Key": key}
            case "part":
                part = rng.choice(("bytes=0-3", "bytes=5-", "bytes=-4", "bytes=2-2", "bytes=8-900"))
                yield "get_object", {"Key": key, "Range": part}
            case "head":
                yield "head_object", {"Key": key}
            case "delete":
                yield "delete_object", {"Key": key}
            case "list":
                options = rng.choice(({}, {"StartAfter": key}, {"MaxKeys": rng.randint(1, 3)}))
                yield "list_objects_v2", {"Prefix": rng.choice(PREFIXES), **options}


async def perform(store: ObjectStore, operation: str, request: dict[str, Any]) -> Any:
    """Return the outcome of a request in a form that is equal for equal outcomes."""
    try:
        response = await store.call(operation, **request)
        found = {name: response[name] for name in FIELDS if name in response}
        if found.get("ContentType") in DEFAULT_TYPES:
            found["ContentType"] = DEFAULT_TYPES[0]
        if "Body" in response:
            async with response["Body"] as body:
                found["content"] = await body.read()
        if operation == "list_objects_v2":
            found["keys"] = await _list_pages(store, request, response)
    except ChatError as exc:
        return type(exc).__name__
    return found


async def _list_pages(
    store: ObjectStore, request: dict[str, Any], response: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the entries of this page and of all later ones."""
    found = [(each["Key"], each["Size"], each["ETag"]) for each in response.get("Contents", ())]
    if token := response.get("NextContinuationToken"):
        later = request | {"ContinuationToken": token}
        later.pop("StartAfter", None)
        found += await _list_pages(store, later, await store.call("list_objects_v2", **later))
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_random_requests_have_the_responses_of_the_server(s3: str, seed: int) -> None:
    """Each request has the same response, also after failed conditions and invalid ranges."""
    settings = cold_settings(s3)

    async with open_s3(settings) as real, contextlib.AsyncExitStack() as stack:
        await apply_bucket(real, settings)
        simulated = SimulatedStore(InstantObjects(), settings, stack)
        for number, (operation, request) in enumerate(draw_requests(seed)):
            wanted = await perform(real, operation, request)
            got = await perform(simulated, operation, request)
            assert got == wanted, f"request {number}: {operation} {request}"
