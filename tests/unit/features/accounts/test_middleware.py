"""Logins that are certain to be refused are answered before the framework runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from chatserver.domain.client_addresses import parse_networks
from chatserver.errors import BadRequest, RateLimited
from chatserver.features.accounts.middleware import DELAYED_OF_NETWORK_MAX, EarlyRefusals
from chatserver.features.accounts.routes import LOGIN_PATH

WRONG = {"user": "victim", "password": "wrong password"}
DEADLINE_S = 20


class Refused:
    """Refuses logins of unknown devices of one network for `wait_ms`."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self.asked: list[tuple[str, str, list[str]]] = []

    def check_refused(self, user_name: str, address: str, device_tokens: Iterable[str]) -> None:
        tokens = list(device_tokens)
        self.asked.append((user_name, address, tokens))
        if address == "4-c0000201" and "known" not in tokens:
            raise RateLimited("too many", retry_after_ms=self.wait_ms)


class Exchange:
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
        self.body_passed_on: bytes | None = None
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
        self.body_passed_on, is_whole = b"", False
        while not is_whole:
            message = await receive()
            self.body_passed_on += message["body"]
            is_whole = not message["more_body"]

    @property
    def problem(self) -> Any:
        """The response."""
        return msgspec.json.decode(self.sent[1]["body"])


def exchange(body: object = WRONG, headers: dict[str, str] | None = None, **scope: Any) -> Exchange:
    """A request with a JSON body."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Exchange(data, headers or {}, **scope)


async def serve(
    made: Exchange, logins: Refused, *, delayed_max: int = 0, proxies: Iterable[str] = ()
) -> None:
    """Pass a request through a middleware of its own."""
    await EarlyRefusals(made.app, logins, parse_networks(proxies), delayed_max)(
        made.scope, made.receive, made.send
    )


async def test_refused_login_is_answered_without_the_application() -> None:
    """As the application answers it: status, problem document and Retry-After."""
    made = exchange()

    await serve(made, Refused(wait_ms=1500))

    assert made.body_passed_on is None
    assert made.sent[0]["status"] == 429
    headers = dict(made.sent[0]["headers"])
    assert headers[b"retry-after"] == b"2"
    assert headers[b"content-type"] == b"application/problem+json"
    assert made.problem["code"] == "rate_limited"
    assert made.problem["retry_after_ms"] == 1500
    assert made.scope["path_template"] == LOGIN_PATH  # counted as other responses of the route


@pytest.mark.parametrize(
    "made",
    [
        lambda: exchange({**WRONG, "device_token": "known"}),
        lambda: exchange(client=("192.0.3.1", 5)),
        lambda: exchange({"user": "victim"}),
        lambda: exchange({**WRONG, "cookie": True}),  # no X-Chat-Client: forbidden
        lambda: exchange(b"{not json"),
        lambda: exchange(b"\xff\xff\xff\xff\xff\xff"),
        lambda: exchange(b"[" * 5000),
        lambda: exchange({**WRONG, "password": "p" * 10_000}),
        lambda: exchange(headers={"content-length": "x"}),
        lambda: exchange(path="/v1/auth/register"),
        lambda: exchange(method="GET"),
    ],
)
async def test_any_other_request_is_passed_on_unchanged(made: Any) -> None:
    """Known devices, other networks, other routes, and bodies that are refused for themselves."""
    request: Exchange = made()
    whole = b"".join(request._parts)

    await serve(request, Refused(wait_ms=60_000))

    assert request.body_passed_on == whole
    assert request.sent == []


async def test_known_device_is_found_in_the_cookie_of_a_browser() -> None:
    """Browsers keep device tokens as a cookie, which only the server's own page may use."""
    logins = Refused(wait_ms=60_000)
    headers = {"cookie": "chat_device=known~other", "x-chat-client": "web"}
    made = exchange({**WRONG, "cookie": True}, headers)

    await serve(made, logins)

    assert logins.asked == [("victim", "4-c0000201", ["known", "other"])]
    assert made.body_passed_on is not None


async def test_address_behind_a_trusted_proxy_is_the_one_that_counts() -> None:
    """Others behind the same proxy are not refused."""
    logins = Refused(wait_ms=60_000)
    headers = {"x-forwarded-for": "203.0.113.7"}

    await serve(exchange(headers=headers), logins, proxies=["192.0.2.1"])

    assert [address for _, address, _ in logins.asked] == ["4-cb007107"]


async def test_refusals_are_delayed_within_bounds() -> None:
    """Some requests of a network wait; the others are answered at once, with the whole time."""
    made = [exchange() for _ in range(DELAYED_OF_NETWORK_MAX + 2)]
    early = EarlyRefusals(made[0].app, Refused(wait_ms=600_000), [], delayed_max=100)
    tasks = [asyncio.create_task(early(each.scope, each.receive, each.send)) for each in made]
    await asyncio.wait(tasks, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)

    assert [each.problem["retry_after_ms"] for each in made if each.sent] == [600_000] * 2
    made[0].has_disconnected.set()
    await asyncio.wait_for(tasks[0], DEADLINE_S)
    assert made[0].sent == []  # nobody is left to read it
    await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    assert {each.problem["retry_after_ms"] for each in made[1:DELAYED_OF_NETWORK_MAX]} == {599_000}


async def test_login_whose_time_has_come_while_it_was_delayed_is_passed_on() -> None:
    """Redis decides about it."""
    made = exchange()

    await asyncio.wait_for(serve(made, Refused(wait_ms=5), delayed_max=1), DEADLINE_S)

    assert made.body_passed_on == msgspec.json.encode(WRONG)


async def test_body_that_ends_early_fails_in_the_application() -> None:
    """Which logs it, as that of any other request."""
    made = exchange()

    async def receive() -> Any:
        raise BadRequest("body: the connection closed before the body was complete")

    made.receive = receive  # type: ignore[method-assign]
    with pytest.raises(BadRequest, match="closed before"):
        await serve(made, Refused(wait_ms=5))
