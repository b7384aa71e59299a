"""The HTTP/2 client with a test server: which failed requests may have been processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from h2.settings import SettingCodes

from chatserver import config
from chatserver.errors import BadRequest, Unavailable
from chatserver.outbound.http2_client import Http2, open_http2, parse_origin
from chatserver.outbound.http_client import Answer, NotReached
from tests.integration.features.push.support import LOOPBACK
from tests.support.servers.apns_service import RESET, ApnsService, open_apns_service
from tests.support.servers.processes import eventually, free_port
from tests.support.servers.push_service import Reply

pytest_plugins = ["tests.integration.features.push.apns_fixtures"]

SETTINGS = config.Outbound(allow_private=LOOPBACK)
TIMEOUT_S = 30.0


@pytest.fixture
async def client(apns_service: ApnsService) -> AsyncIterator[Http2]:
    """A client of the service."""
    async with open_http2(apns_service.url, SETTINGS) as opened:
        yield opened


async def post(
    client: Http2, path: str = "/x", body: bytes = b"{}", *, timeout_s: float = TIMEOUT_S
) -> Answer:
    """Post a request with default headers and limits."""
    headers = {"authorization": "bearer none"}
    return await client.post(
        path, body=body, headers=headers, timeout_s=timeout_s, response_bytes_max=200
    )


@pytest.fixture
def service(apns_service: ApnsService, monkeypatch: pytest.MonkeyPatch) -> ApnsService:
    """The service without authentication."""
    monkeypatch.setattr(apns_service, "check", lambda request: None)
    return apns_service


async def test_http2_requests_share_one_connection_and_do_not_wait_for_each_other(
    client: Http2, service: ApnsService
) -> None:
    """A hanging request does not delay others."""
    gate = asyncio.Event()
    service.replies["/slow"] = [Reply(200, gate=gate)]
    slow = asyncio.create_task(post(client, "/slow"))
    await eventually(lambda: service.taken, 60)

    answers = await asyncio.gather(*(post(client, f"/{n}") for n in range(20)))

    assert {answer.status for answer in answers} == {200}
    assert not slow.done()
    gate.set()
    assert (await slow).is_ok
    assert service.connected == 1


async def test_http2_requests_beyond_the_stream_limit_wait(
    client: Http2, service: ApnsService
) -> None:
    """APNs allows one stream until the client is authenticated."""
    service.http2 = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]

    requests = [asyncio.create_task(post(client)) for _ in range(5)]
    await eventually(lambda: len(service.taken) == 2, 60)
    with pytest.raises(NotReached):  # the request was not sent and will not be sent
        await post(client, "/late", timeout_s=0.2)
    assert len(service.taken) == 2
    gate.set()

    assert [answer.status for answer in await asyncio.gather(*requests)] == [200] * 5


async def test_http2_body_larger_than_the_window_is_sent_as_the_window_opens(
    client: Http2, service: ApnsService
) -> None:
    """A request whose body was not sent completely has not been processed."""
    service.http2 = {SettingCodes.INITIAL_WINDOW_SIZE: 100}
    assert (await post(client, body=b"x" * 4096)).is_ok
    assert len(service.taken[0].body) == 4096

    service.opens_window = False
    with pytest.raises(NotReached):
        await post(client, body=b"x" * 4096, timeout_s=0.3)
    assert len(service.taken) == 1


async def test_http2_request_after_goaway_or_disconnect_uses_a_new_connection(
    client: Http2, service: ApnsService
) -> None:
    """Servers close idle connections, but the next request does not fail."""
    await post(client)

    service.go_away(1, '{"reason":"IdleTimeout"}')
    await eventually(lambda: not service.connections, 60)

    assert (await post(client)).is_ok
    service.drop()
    await asyncio.sleep(0)
    await eventually(lambda: not service.connections, 60)
    assert (await post(client)).is_ok
    assert service.connected == 3


async def test_http2_request_after_the_last_stream_of_goaway_raises_not_reached(
    client: Http2, service: ApnsService
) -> None:
    """GOAWAY names the last processed stream. Later requests fail, earlier ones get responses."""
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]
    requests = [asyncio.create_task(post(client)) for _ in range(3)]
    await eventually(lambda: len(service.taken) == 3, 60)

    # h2's server does not respond after GOAWAY; the restored state makes it do so.
    (connection,) = service.connections
    state = connection.core.state_machine.state
    service.go_away(3, "maintenance", is_over=False)
    connection.core.state_machine.state = state
    with pytest.raises(NotReached, match="maintenance"):
        await requests[2]
    fresh = asyncio.create_task(post(client, "/other"))
    assert (await fresh).is_ok
    gate.set()

    assert [(await one).status for one in requests[:2]] == [200, 200]
    assert service.connected == 2
    await eventually(lambda: len(service.connections) == 1, 60, "the old connection is closed")


async def test_http2_goaway_and_response_in_one_write_are_both_handled(
    client: Http2, service: ApnsService
) -> None:
    """h2 stops at a GOAWAY. Frames received together with it must not be lost."""
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]
    requests = [asyncio.create_task(post(client)) for _ in range(2)]
    await eventually(lambda: len(service.taken) == 2, 60)

    (connection,) = service.connections
    state = connection.core.state_machine.state
    connection.core.close_connection(0, b"", 1)
    connection.core.state_machine.state = state
    connection.core.send_headers(1, [(":status", "202")], end_stream=True)
    connection.flush()

    assert (await requests[0]).status == 202
    with pytest.raises(NotReached):
        await requests[1]


@pytest.mark.parametrize(
    ("code", "kind"), [("REFUSED_STREAM", NotReached), ("INTERNAL_ERROR", Unavailable)]
)
async def test_http2_stream_that_is_reset_fails_alone(
    client: Http2, service: ApnsService, code: str, kind: type[Exception]
) -> None:
    """A refused stream was not processed. Any other may have been."""
    service.replies["/x"] = [Reply(RESET, body=code, times=1)]

    with pytest.raises(Unavailable, match=code) as failed:
        await post(client)

    assert type(failed.value) is kind
    assert (await post(client)).is_ok
    assert service.connected == 1


async def test_http2_request_whose_connection_breaks_may_have_been_processed(
    client: Http2, service: ApnsService
) -> None:
    """The error is not `NotReached`, because a retry could process the request twice."""
    service.replies["/x"] = [Reply(200, gate=asyncio.Event())]
    request = asyncio.create_task(post(client))
    await eventually(lambda: service.taken, 60)

    service.drop()

    with pytest.raises(Unavailable) as failed:
        await request
    assert not isinstance(failed.value, NotReached)


async def test_http2_dead_connection_is_detected_before_the_next_request(
    service: ApnsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a request timed out, a ping checks the connection before the next request."""
    monkeypatch.setattr("chatserver.outbound.http2_connection.PING_S", 0.2)
    async with open_http2(service.url, SETTINGS) as client:
        await post(client)
        service.ignore_data()
        with pytest.raises(Unavailable) as failed:
            await post(client, timeout_s=0.2)
        assert not isinstance(failed.value, NotReached)

        assert (await post(client)).is_ok
        assert service.connected == 2


async def test_http2_idle_connection_that_answers_a_ping_is_kept(
    service: ApnsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping costs less than a handshake."""
    monkeypatch.setattr(
        "chatserver.outbound.http2_connection.PING_S", 60.0
    )  # a slow response is accepted
    async with open_http2(service.url, SETTINGS, ping_after_s=0.0) as client:
        assert [(await post(client)).status for _ in range(3)] == [200] * 3
    assert service.connected == 1
    await eventually(
        lambda: not service.connections, 60, "the connection is closed with the client"
    )


@pytest.mark.parametrize(
    "invalid",
    [
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",  # a frame of 16 MB
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x",  # data on stream 0
        b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",  # truncated headers
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_http2_protocol_error_of_the_server_closes_the_connection(
    client: Http2, service: ApnsService, invalid: bytes
) -> None:
    """Requests in flight have an unknown outcome. The next one uses a new connection."""
    service.replies["/x"] = [Reply(200, gate=asyncio.Event(), times=1)]
    request = asyncio.create_task(post(client))
    await eventually(lambda: service.taken, 60)

    service.connections[0].transport.write(invalid)

    with pytest.raises(Unavailable) as failed:
        await request
    assert not isinstance(failed.value, NotReached)
    assert (await post(client)).is_ok
    assert service.connected == 2


async def test_http2_response_at_the_limit_is_accepted_and_over_it_refused(
    client: Http2, service: ApnsService
) -> None:
    """The server does not decide how much memory the client uses."""
    service.replies["/x"] = [Reply(400, body="x" * 200, times=1), Reply(400, body="x" * 201)]

    assert len((await post(client)).body) == 200
    with pytest.raises(Unavailable, match="200 bytes"):
        await post(client)


async def test_http2_untrusted_or_http1_server_gets_no_request(
    service: ApnsService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with a certificate for another name, or a closed port, gets no request either."""
    (tmp_path / "other").mkdir()
    async with open_apns_service(tmp_path / "other", "http/1.1") as other:
        closed = f"https://127.0.0.1:{free_port()}"
        trusted = str(service.certificate)
        for url, certificate in (
            (service.url, str(other.certificate)),
            (other.url, str(other.certificate)),
            (closed, trusted),
            (service.url.replace("127.0.0.1", "localhost"), trusted),  # not in the certificate
        ):
            monkeypatch.setenv("SSL_CERT_FILE", certificate)
            async with open_http2(url, SETTINGS) as client:
                with pytest.raises(NotReached):
                    await post(client)
        assert service.taken == other.taken == []


async def test_http2_address_is_checked_when_it_connects(service: ApnsService) -> None:
    """Even the operator's own URL reaches private addresses only if they are allowed."""
    looked_up: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    url = service.url.replace("127.0.0.1", "apns.example")
    async with open_http2(url, config.Outbound(), lookup) as client:
        with pytest.raises(BadRequest):
            await post(client)
    assert service.connected == 0
    async with open_http2(url, SETTINGS, lookup) as client:
        assert (await post(client)).is_ok
    assert looked_up == ["apns.example"] * 2
    assert service.taken[0].headers[":authority"] == url.removeprefix("https://")


def test_http2_url_must_be_an_https_origin() -> None:
    """Plain HTTP, paths and user info are refused."""
    for bad in ("http://apns.example", "https://apns.example/x", "https://a@b", "apns.example"):
        with pytest.raises(BadRequest):
            parse_origin(bad)
    assert parse_origin("https://apns.example").port == 443
