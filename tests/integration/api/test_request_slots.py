"""No refused request keeps a request slot of its user, on any route and for any reason."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from litestar.types import ASGIApp

from chatserver.api.request_limits import REQUESTS_OF_USER_MAX
from chatserver.auth.api_keys import SCOPES
from chatserver.config import Limits
from chatserver.telemetry import metrics
from tests.integration.api.support import open_api, settings_of
from tests.security.support.users import make_key
from tests.support.stack import Stack

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
UNLIMITED = "1000000/s burst 1000000"
ABSENT = "no-such-thing"  # a valid ID
REFUSALS_MIN = 1_000
ANSWER_S_MAX = 20


class Refused(NamedTuple):
    """A request that the API must refuse, and the reason."""

    reason: str
    method: str
    path: str
    fields: dict[str, Any]


@pytest.fixture
async def app(stack: Stack) -> AsyncIterator[ASGIApp]:
    """An API in this process, whose slots the test can count."""
    limits = dict.fromkeys(("calls", "failures", "requests", "sends", "logins"), UNLIMITED)
    async with open_api(settings_of(stack, limits=Limits.model_validate(limits))) as app:
        yield app


@contextlib.contextmanager
def garbage_collector_disabled() -> Iterator[None]:
    """Disable the garbage collector, which would close abandoned generators."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def held_slots() -> dict[str, float]:
    """Return the held and waiting slots of each kind that are not zero."""
    return {
        "/".join(sample.labels.values()): sample.value
        for sample in metrics.SLOTS.collect()[0].samples
        if sample.value
    }


def list_refused(token: str, weak_key: str, key: str) -> Iterator[Refused]:
    """Generate requests to all operations that are each refused for one reason."""
    as_user = {"Authorization": f"Bearer {token}"}
    as_stranger = {"Authorization": f"Bearer {key}", "X-Chat-As": ABSENT}
    paths = msgspec.json.decode(DOCUMENT.read_bytes())["paths"]
    for template, item in paths.items():
        for name, operation in item.items():
            method, rule = name.upper(), operation["x-rule"]
            parameters = operation.get("parameters", ())
            in_path = [each["name"] for each in parameters if each["in"] == "path"]
            in_query = [each["name"] for each in parameters if each["in"] == "query"]
            in_header = {each["name"] for each in parameters if each["in"] == "header"}
            path = template.format(**dict.fromkeys(in_path, ABSENT) | {"seq": 1, "version": 1})
            headers = {} if rule == "anyone" else as_user

            def refuse(reason: str, path: str = path, **fields: Any) -> Refused:
                fields = {"headers": headers, **fields}  # noqa: B023  # used before the next loop
                return Refused(reason, method, path, fields)  # noqa: B023

            if template.startswith("/v1"):
                yield refuse("unknown query", params={"unknown": "1"})
            for query in in_query:
                yield refuse("bad query", params={query: "\0"})
            if {"from", "to"} <= set(in_query):
                yield refuse("bad range", params={"from": 9, "to": 1})
                yield refuse("bad range", params={"from": 9, "to": 1, "cursor": "bad"})
            for each in in_path:
                bad = dict.fromkeys(in_path, ABSENT) | {"seq": 1, "version": 1, each: "~"}
                yield refuse("bad path", template.format(**bad))
            if "requestBody" in operation:
                yield refuse("bad body", content=b'{"no such field": 1}')
                yield refuse("not JSON", content=b"{")
                yield refuse("not UTF-8", content=b'"\xff"')
                yield refuse("wrong type", content=b"[]")
                yield refuse("too deep", content=b"[" * 30_000)
                yield refuse("too large", content=b" " * 2_000_000)
            if "Idempotency-Key" in in_header:
                yield refuse("bad key", headers={**headers, "Idempotency-Key": "two words"})
            if rule != "anyone":
                yield refuse("anonymous", headers={})
                yield refuse("bad token", headers={"Authorization": "Bearer a.b.c"})
                yield refuse("no scope", headers={"Authorization": f"Bearer {weak_key}"})
            if "X-Chat-As" in in_header:
                yield refuse("bad user", headers={**as_stranger, "X-Chat-As": "~"})
                if rule.startswith("user"):
                    yield refuse("unknown user", headers=as_stranger)
                    if template != "/v1/companions":  # this list needs no user
                        yield refuse("nobody", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.timeout(300)
async def test_refused_requests_of_all_routes_hold_no_slot(stack: Stack, app: ASGIApp) -> None:
    """More than 1,000 refusals, without the garbage collector; then the user is still served."""
    token = stack.token("refused")
    weak_key, key = await make_key(stack, "act_as"), await make_key(stack, *SCOPES)
    counts: collections.Counter[str] = collections.Counter()
    unexpected: list[str] = []
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]  # it is an ASGI app
    async with httpx.AsyncClient(base_url="http://api.example", transport=transport) as client:
        with garbage_collector_disabled():
            for refused in list_refused(token, weak_key, key):
                where = f"{refused.reason}: {refused.method} {refused.path} {refused.fields}"
                async with asyncio.timeout(ANSWER_S_MAX):
                    answer = await client.request(refused.method, refused.path, **refused.fields)
                counts[refused.reason] += 1
                if not 400 <= answer.status_code < 500:
                    unexpected.append(f"{answer.status_code} for {where}")
                assert held_slots() == {}, where

            headers = {"Authorization": f"Bearer {token}"}
            served = await asyncio.gather(
                *(client.get("/v1/me", headers=headers) for _ in range(2 * REQUESTS_OF_USER_MAX))
            )

    assert unexpected == []
    assert counts.total() >= REFUSALS_MIN, counts
    assert {answer.status_code for answer in served} == {200}
    assert held_slots() == {}
