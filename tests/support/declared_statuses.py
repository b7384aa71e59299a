"""Every response that a test gets from the API has a status that the OpenAPI document declares.

The fixture `declared_statuses` adds this check to the clients of httpx in a folder or module that
imports it.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
# Refusals of a connection, before the request has a route: invalid or late headers.
CONNECTION_STATUSES = {400, 408, 414, 431}

Statuses = dict[str, set[int]]  # by method


@functools.cache
def read_operations() -> tuple[dict[str, Statuses], list[tuple[re.Pattern[str], Statuses]]]:
    """Return the declared statuses by path without parameters, and by pattern of other paths."""
    fixed: dict[str, Statuses] = {}
    patterns = []
    for template, item in msgspec.json.decode(DOCUMENT.read_bytes())["paths"].items():
        statuses = {
            method.upper(): {int(status) for status in operation["responses"]}
            for method, operation in item.items()
        }
        if not template.startswith("/v1/"):
            continue  # probes, which other servers have too
        if "{" in template:
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
            patterns.append((re.compile(pattern), statuses))
        else:
            fixed[template] = statuses
    return fixed, patterns


def find_statuses(method: str, path: str) -> set[int] | None:
    """Return the declared statuses of a request's operation; None if there is no operation."""
    fixed, patterns = read_operations()
    item = fixed.get(path) or next(
        (statuses for pattern, statuses in patterns if pattern.fullmatch(path)), {}
    )
    return item.get("GET" if method == "HEAD" else method)


def check_response(response: httpx.Response) -> None:
    """Check the status of a response, if it is from an operation of the document.

    Raises:
        AssertionError: the operation does not declare the status.
    """
    request = response.request
    path = request.url.raw_path.decode().partition("?")[0]
    declared = find_statuses(request.method, path)
    if declared is None or response.status_code in declared | CONNECTION_STATUSES:
        return
    text = f"{request.method} {path} returned {response.status_code}, which it does not declare"
    raise AssertionError(text)


@pytest.fixture(autouse=True)
def declared_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every response that a client of httpx gets."""
    send = httpx.AsyncClient.send

    async def send_checked(self: httpx.AsyncClient, *args: Any, **more: Any) -> httpx.Response:
        response = await send(self, *args, **more)
        check_response(response)
        return response

    monkeypatch.setattr(httpx.AsyncClient, "send", send_checked)
