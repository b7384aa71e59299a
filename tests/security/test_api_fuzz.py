"""Fuzzing of the running API with requests generated from its OpenAPI document.

Schemathesis generates a fixed number of requests for each operation, the same in each run. Half of
them refer to existing resources, so that they pass the first check. No response may be a 5xx. Other
tests cover refusals.
"""

from __future__ import annotations

import asyncio
import collections
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from chatserver.auth.api_keys import SCOPES
from chatserver.dev.servers import Server
from tests.security.support.users import make_key
from tests.support.stack import Stack

IS_SOAK = settings.get_current_profile_name() == "soak"
CASES_PER_OPERATION = 30 if IS_SOAK else 3
TIMEOUT_S = 20
SERVER_ERROR = 500


@pytest.mark.timeout(600)
def test_api_fuzzed_from_its_openapi_document_never_returns_5xx(stack: Stack, api: Server) -> None:
    """Valid and invalid input gets a response or a refusal, never a server error."""
    key = asyncio.run(make_key(stack, *SCOPES))
    failures: list[str] = []
    counts: collections.Counter[str] = collections.Counter()
    with requests.Session() as session:
        schema = schemathesis.openapi.from_url(f"{api.endpoint}/v1/openapi.json")
        for number, found in enumerate(schema.get_all_operations()):
            operation = found.ok()
            # Use a separate user for each operation, because one of them logs its user out
            # everywhere.
            token = stack.token(f"fuzz-{number}")
            existing = create_resources(session, api, token, stack.token(f"friend-{number}"))
            is_for_keys = operation.definition.raw["x-rule"].startswith("key with")
            for index, case in enumerate(make_cases(operation)):
                if index % 2:
                    given_names = case.path_parameters or {}
                    case.path_parameters = given_names | {
                        name: existing.get(name, value) for name, value in given_names.items()
                    }
                answer = send(session, api, case, key if is_for_keys else token)
                counts[operation.label] += 1
                if answer.status_code >= SERVER_ERROR:
                    failures.append(f"{answer.status_code}: {case.as_curl_command()}")

        assert failures == []
        assert set(counts.values()) == {CASES_PER_OPERATION}
        assert session.get(f"{api.endpoint}/readyz", timeout=TIMEOUT_S).status_code == 200


def make_cases(operation: Any) -> list[Any]:
    """Return the requests for an operation."""
    cases: list[Any] = []

    @seed(20_261)
    @settings(
        max_examples=CASES_PER_OPERATION,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def collect(case: Any) -> None:
        cases.append(case)

    collect()
    # Some operations have only a few distinct cases.
    return (cases * CASES_PER_OPERATION)[:CASES_PER_OPERATION]


def create_resources(
    session: requests.Session, api: Server, token: str, friend: str
) -> dict[str, Any]:
    """Create a chat with a message; return the path parameters that refer to them."""

    def request(method: str, path: str, user_token: str, json: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {user_token}"}
        url = f"{api.endpoint}{path}"
        response = session.request(method, url, json=json, headers=headers, timeout=TIMEOUT_S)
        assert response.ok, response.text
        return response.json()

    user, other = (request("GET", "/v1/me", each)["user"] for each in (token, friend))
    chat = request("POST", "/v1/chats", token, {"members": [other]})["chat"]
    request("POST", f"/v1/chats/{chat}/messages", token, {"body": "hello"})
    return {"chat": chat, "seq": 1, "user": other, "me": user}


def send(session: requests.Session, api: Server, case: Any, token: str) -> requests.Response:
    """Send a request with this token instead of generated credentials."""
    headers = {name: value for name, value in (case.headers or {}).items() if name != "X-Chat-As"}
    case.headers = headers | {"Authorization": f"Bearer {token}"}
    fields = case.as_transport_kwargs(base_url=api.endpoint)
    return session.request(**fields, timeout=TIMEOUT_S)
