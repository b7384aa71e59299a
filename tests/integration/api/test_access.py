"""API authentication and the errors of requests that are not allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from chatserver.config import Auth, Redis, Settings, Warm
from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, open_api, problem_of
from tests.support.rawchat import RawChat
from tests.support.servers.processes import free_port
from tests.support.stack import NewName, Stack

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text("utf-8"))
NO_CHAT = "01HZZZZZZZZZZZZZZZZZZZZZZZ"


@pytest.mark.parametrize(
    "header",
    [None, "Bearer nonsense", "Bearer a.b.c", "Basic YTpi", "Bearer", "a.b.c", "Bearer x y"],
)
async def test_request_without_a_valid_token_is_refused(api: Server, header: str | None) -> None:
    """The challenge of RFC 6750, section 3, has an error only if a token was sent."""
    headers = {} if header is None else {"Authorization": header}
    async with httpx.AsyncClient(base_url=api.endpoint, timeout=20) as client:
        answer = await client.get("/v1/me", headers=headers)

    assert problem_of(answer) == (401, "unauthenticated")
    challenge = "Bearer" if header is None else 'Bearer error="invalid_token"'
    assert answer.headers["www-authenticate"] == challenge
    assert "nonsense" not in answer.text  # the response does not repeat the token


async def test_token_in_the_query_is_not_accepted(stack: Stack, api: Server) -> None:
    """URLs are logged and stored in browser histories, so a token in a URL is ignored."""
    async with httpx.AsyncClient(base_url=api.endpoint, timeout=20) as client:
        for name in ("token", "access_token", "authorization"):
            answer = await client.get("/v1/me", params={name: stack.token("alice")})
            assert problem_of(answer) == (401, "unauthenticated")


async def test_act_as_header_from_a_user_is_forbidden(caller: Caller) -> None:
    """Only API keys may act as another user."""
    answer = await caller("oscar").get("/v1/me", headers={"X-Chat-As": "alice"})

    assert problem_of(answer) == (403, "forbidden")


async def test_unknown_path_is_answered_with_a_problem(caller: Caller) -> None:
    """This is also true below /v1, where the framework would send its own error page."""
    for path in ("/v1/nothing", "/v1", "/v1/chats/c/nothing", "/schema"):
        assert problem_of(await caller("oscar").get(path)) == (404, "not_found")


async def test_api_without_dynamodb_is_alive_but_not_ready(redis_url: str) -> None:
    """Readiness fails with a reason. Liveness passes, because a restart would not help."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    settings = Settings(
        redis=Redis(url=redis_url, call_timeout_s=20),
        warm=Warm(endpoint=endpoint, access_key="none", secret_key=SecretStr("none")),
        auth=Auth(secret=SecretStr("0" * 32)),
    )
    async with open_api(settings) as app:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]  # httpx type
        async with httpx.AsyncClient(base_url="http://api.example", transport=transport) as client:
            alive, ready = await client.get("/healthz"), await client.get("/readyz")

    assert alive.status_code == 200
    assert problem_of(ready) == (503, "unavailable")
    assert ready.json()["detail"]


async def test_empty_body_is_accepted_if_all_fields_are_optional(
    caller: Caller, new_name: NewName
) -> None:
    """No such route requires `{}`, so its errors do not mention the body."""
    client = caller(new_name("empty"))
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if operation.get("requestBody", {}).get("required", True) or path == "/v1/me":
                continue
            url = re.sub("{[a-z]+}", NO_CHAT, path.replace("{seq}", "1"))
            answer = await client.request(method.upper(), url)
            assert answer.status_code < 500, f"{method} {path}: {answer.text}"
            assert "body" not in answer.text, f"{method} {path}: {answer.text}"


async def test_unknown_field_of_a_body_is_refused_with_its_name(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """A misspelled field is an error instead of being ignored."""
    path = f"/v1/chats/{pair}/notifications"

    answer = await caller(alice.user).put(path, json={"quiet": True, "untill": 5})
    nested = await caller(alice.user).post(
        "/v1/me/push-subscriptions", json={"keys": {"p256dh": "x", "auth": "y", "more": "z"}}
    )

    assert problem_of(answer) == problem_of(nested) == (400, "bad_request")
    assert "untill" in answer.json()["detail"]
    assert "more" in nested.json()["detail"]
    assert (await caller(alice.user).get(path)).json() == {"quiet": False, "until": None}
