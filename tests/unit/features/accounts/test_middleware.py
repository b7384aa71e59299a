"""Logins that the application would refuse get the same response before the framework runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from chatserver.domain.client_addresses import parse_networks
from chatserver.errors import BadRequest, RateLimited
from chatserver.features.accounts.login_routes import LOGIN_PATH
from chatserver.features.accounts.middleware import DELAYED_OF_NETWORK_MAX, EarlyRefusals

WRONG_PASSWORD = {"user": "victim", "password": "wrong password"}
DEADLINE_S = 20


class StubLimiter:
    """Refuses logins of unknown devices of one network for `wait_ms`."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self.checked: list[tuple[str, str, list[str]]] = []

    def check_refused(self, user_name: str, address: str, device_tokens: Iterable[str]) -> None:
        tokens = list(device_tokens)
        self.checked.append((user_name, address, tokens))
        if address == "4-c0000201" and "known" not in tokens:
            raise RateLimited("too many", retry_after_ms=self.wait_ms)


class FakeRequest:
    """One HTTP request to the middleware."""

    def __init__(self, body: bytes, headers: dict[str, str], **scope: Any) -> None:
        self.scope: Any = {
            "type": "http",
            "method": "POST",
            "path": LOGIN_PATH,
            "client": ("192.0.2.1", 5),
            "query_string": b"",
            "headers": [
                (name.encode(), value.encode())
                for name, value in ({"content-length": str(len(body))} | headers).items()
            ],
            **scope,
        }
        self.has_disconnected = asyncio.Event()
        self.sent: list[Any] = []
        self.forwarded_body: bytes | None = None
        self._parts = [body[:5], body[5:]]

    async def receive(self) -> Any:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.has_disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def app(self, _: Any, receive: Any, __: Any) -> None:
        self.forwarded_body, is_complete = b"", False
        while not is_complete:
            message = await receive()
            self.forwarded_body += message["body"]
            is_complete = not message["more_body"]

    @property
    def problem(self) -> Any:
        return msgspec.json.decode(self.sent[1]["body"])


def make_request(
    body: object = WRONG_PASSWORD, headers: dict[str, str] | None = None, **scope: Any
) -> FakeRequest:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return FakeRequest(data, headers or {}, **scope)


async def serve(
    request: FakeRequest, logins: StubLimiter, *, delayed_max: int = 0, proxies: Iterable[str] = ()
) -> None:
    """Pass a request through a new middleware."""
    await EarlyRefusals(request.app, logins.check_refused, parse_networks(proxies), delayed_max)(
        request.scope, request.receive, request.send
    )


async def test_refused_login_gets_its_response_without_the_application() -> None:
    """The application would send the same status, problem document and Retry-After."""
    request = make_request()

    await serve(request, StubLimiter(wait_ms=1500))

    assert request.forwarded_body is None
    assert request.sent[0]["status"] == 429
    headers = dict(request.sent[0]["headers"])
    assert headers[b"retry-after"] == b"2"
    assert headers[b"content-type"] == b"application/problem+json"
    assert request.problem["code"] == "rate_limited"
    assert request.problem["retry_after_ms"] == 1500
    assert request.scope["path_template"] == LOGIN_PATH  # counted like other responses of the route


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_request({**WRONG_PASSWORD, "device_token": "known"}),
        lambda: make_request(client=("192.0.3.1", 5)),
        lambda: make_request({"user": "victim"}),
        lambda: make_request({**WRONG_PASSWORD, "cookie": True}),  # no X-Chat-Client: forbidden
        lambda: make_request(b"{not json"),
        lambda: make_request(b"\xff\xff\xff\xff\xff\xff"),
        lambda: make_request(b"[" * 5000),
        lambda: make_request({**WRONG_PASSWORD, "password": "p" * 10_000}),
        lambda: make_request(headers={"content-length": "x"}),
        lambda: make_request(path="/v1/auth/register"),
        lambda: make_request(method="GET"),
    ],
)
async def test_any_other_request_is_passed_on_unchanged(make: Any) -> None:
    """Known devices, other networks, other routes, and bodies that the application refuses."""
    request: FakeRequest = make()
    body = b"".join(request._parts)

    await serve(request, StubLimiter(wait_ms=60_000))

    assert request.forwarded_body == body
    assert request.sent == []


async def test_known_device_is_found_in_the_cookie_of_a_browser() -> None:
    """Browsers keep device tokens as a cookie, which only the server's own page may use."""
    logins = StubLimiter(wait_ms=60_000)
    headers = {"cookie": "chat_device=known~other", "x-chat-client": "web"}
    request = make_request({**WRONG_PASSWORD, "cookie": True}, headers)

    await serve(request, logins)

    assert logins.checked == [("victim", "4-c0000201", ["known", "other"])]
    assert request.forwarded_body is not None


async def test_address_behind_a_trusted_proxy_is_checked() -> None:
    """Other clients behind the same proxy are not refused."""
    logins = StubLimiter(wait_ms=60_000)
    headers = {"x-forwarded-for": "203.0.113.7"}

    await serve(make_request(headers=headers), logins, proxies=["192.0.2.1"])

    assert [address for _, address, _ in logins.checked] == ["4-cb007107"]


async def test_number_of_delayed_refusals_is_limited() -> None:
    """Some requests of a network wait; the others get the full retry time at once."""
    requests = [make_request() for _ in range(DELAYED_OF_NETWORK_MAX + 2)]
    limiter = StubLimiter(wait_ms=600_000)
    early = EarlyRefusals(requests[0].app, limiter.check_refused, [], delayed_max=100)
    tasks = [asyncio.create_task(early(each.scope, each.receive, each.send)) for each in requests]
    await asyncio.wait(tasks, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)

    assert [each.problem["retry_after_ms"] for each in requests if each.sent] == [600_000] * 2
    requests[0].has_disconnected.set()
    await asyncio.wait_for(tasks[0], DEADLINE_S)
    assert requests[0].sent == []  # the client has disconnected
    await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    assert {each.problem["retry_after_ms"] for each in requests[1:DELAYED_OF_NETWORK_MAX]} == {
        599_000
    }


async def test_login_that_became_allowed_while_delayed_is_passed_on() -> None:
    """The application then checks the limits in Redis."""
    request = make_request()

    await asyncio.wait_for(serve(request, StubLimiter(wait_ms=5), delayed_max=1), DEADLINE_S)

    assert request.forwarded_body == msgspec.json.encode(WRONG_PASSWORD)


async def test_body_that_ends_early_fails_in_the_application() -> None:
    """The application logs it like any other incomplete request."""
    request = make_request()

    async def receive() -> Any:
        raise BadRequest("body: the connection closed before the body was complete")

    request.receive = receive  # type: ignore[method-assign]
    with pytest.raises(BadRequest, match="closed before"):
        await serve(request, StubLimiter(wait_ms=5))
