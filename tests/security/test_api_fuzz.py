"""The running API against requests made from its own document: never a 5xx, and it stays well.

Made by schemathesis, through its Python interface: so many requests for each operation, the same
ones in each run. Half of them name things that exist, so that they get past the first check. What
is looked for is a server that fails; what it refuses is for other tests.
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

pytest_plugins = ["tests.support.stack_fixtures", "tests.integration.api.fixtures"]

IS_SOAK = settings.get_current_profile_name() == "soak"
CASES_PER_OPERATION = 30 if IS_SOAK else 3
TIMEOUT_S = 20
FAILING = 500


@pytest.mark.timeout(600)
def test_api_fuzzed_by_its_own_document_never_fails(stack: Stack, api: Server) -> None:
    """Any input that the types allow, and much that they do not, is answered or refused."""
    key = asyncio.run(make_key(stack, *SCOPES))
    failures: list[str] = []
    asked: collections.Counter[str] = collections.Counter()
    with requests.Session() as session:
        schema = schemathesis.openapi.from_url(f"{api.endpoint}/v1/openapi.json")
        for number, found in enumerate(schema.get_all_operations()):
            operation = found.ok()
            # A user for each, for one of them logs its user out everywhere.
            token = stack.token(f"fuzz-{number}")
            existing = make_things(session, api, token, stack.token(f"friend-{number}"))
            is_for_keys = operation.definition.raw["x-rule"].startswith("key with")
            for index, case in enumerate(make_cases(operation)):
                if index % 2:
                    given_names = case.path_parameters or {}
                    case.path_parameters = given_names | {
                        name: existing.get(name, value) for name, value in given_names.items()
                    }
                answer = send(session, api, case, key if is_for_keys else token)
                asked[operation.label] += 1
                if answer.status_code >= FAILING:
                    failures.append(f"{answer.status_code}: {case.as_curl_command()}")

        assert failures == []
        assert set(asked.values()) == {CASES_PER_OPERATION}
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
    return (cases * CASES_PER_OPERATION)[:CASES_PER_OPERATION]  # of some there are but a few


def make_things(session: requests.Session, api: Server, token: str, friend: str) -> dict[str, Any]:
    """Make a chat with a message; return what names them in paths."""

    def ask(method: str, path: str, who: str, json: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {who}"}
        url = f"{api.endpoint}{path}"
        answer = session.request(method, url, json=json, headers=headers, timeout=TIMEOUT_S)
        assert answer.ok, answer.text
        return answer.json()

    user, other = (ask("GET", "/v1/me", who)["user"] for who in (token, friend))
    chat = ask("POST", "/v1/chats", token, {"members": [other]})["chat"]
    ask("POST", f"/v1/chats/{chat}/messages", token, {"body": "hello"})
    return {"chat": chat, "seq": 1, "user": other, "me": user}


def send(session: requests.Session, api: Server, case: Any, token: str) -> requests.Response:
    """Make a request as somebody in particular."""
    made = {name: value for name, value in (case.headers or {}).items() if name != "X-Chat-As"}
    case.headers = made | {"Authorization": f"Bearer {token}"}
    fields = case.as_transport_kwargs(base_url=api.endpoint)
    return session.request(**fields, timeout=TIMEOUT_S)
