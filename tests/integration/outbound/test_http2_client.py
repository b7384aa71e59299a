"""The client of HTTP/2 against a server of our own: what it knows of a request that failed."""

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

OPEN = config.Outbound(allow_private=LOOPBACK)
PATIENCE_S = 30.0


@pytest.fixture
async def client(apns_service: ApnsService) -> AsyncIterator[Http2]:
    """A client of the service."""
    async with open_http2(apns_service.url, OPEN) as opened:
        yield opened


async def ask(
    client: Http2, path: str = "/x", body: bytes = b"{}", *, timeout_s: float = PATIENCE_S
) -> Answer:
    """Ask as anybody does."""
    headers = {"authorization": "bearer none"}
    return await client.post(
        path, body=body, headers=headers, timeout_s=timeout_s, answer_bytes_max=200
    )


@pytest.fixture
def service(apns_service: ApnsService, monkeypatch: pytest.MonkeyPatch) -> ApnsService:
    """The service, which does not ask who calls."""
    monkeypatch.setattr(apns_service, "check", lambda taken: None)
    return apns_service


async def test_http2_requests_share_one_connection_and_do_not_wait_for_each_other(
    client: Http2, service: ApnsService
) -> None:
    """A hanging request does not delay others."""
    gate = asyncio.Event()
    service.replies["/slow"] = [Reply(200, gate=gate)]
    slow = asyncio.create_task(ask(client, "/slow"))
    await eventually(lambda: service.taken, 60)

    answers = await asyncio.gather(*(ask(client, f"/{n}") for n in range(20)))

    assert {answer.status for answer in answers} == {200}
    assert not slow.done()
    gate.set()
    assert (await slow).is_ok
    assert service.connected == 1


async def test_http2_requests_beyond_what_the_server_takes_wait(
    client: Http2, service: ApnsService
) -> None:
    """APNs takes one at a time until it knows who calls."""
    service.http2 = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]

    asked = [asyncio.create_task(ask(client)) for _ in range(5)]
    await eventually(lambda: len(service.taken) == 2, 60)
    with pytest.raises(NotReached):  # it has not left, and so it never will
        await ask(client, "/late", timeout_s=0.2)
    assert len(service.taken) == 2
    gate.set()

    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 5


async def test_http2_body_larger_than_the_window_goes_as_the_server_takes_it(
    client: Http2, service: ApnsService
) -> None:
    """And what did not go to its end, the server has surely not done."""
    service.http2 = {SettingCodes.INITIAL_WINDOW_SIZE: 100}
    assert (await ask(client, body=b"x" * 4096)).is_ok
    assert len(service.taken[0].body) == 4096

    service.opens_window = False
    with pytest.raises(NotReached):
        await ask(client, body=b"x" * 4096, timeout_s=0.3)
    assert len(service.taken) == 1


async def test_http2_server_that_goes_away_is_asked_anew_on_another_connection(
    client: Http2, service: ApnsService
) -> None:
    """It does so now and then; a request meets it at most while it is on its way."""
    await ask(client)

    service.go_away(1, '{"reason":"IdleTimeout"}')
    await eventually(lambda: not service.connections, 60)

    assert (await ask(client)).is_ok
    service.drop()
    await asyncio.sleep(0)
    await eventually(lambda: not service.connections, 60)
    assert (await ask(client)).is_ok
    assert service.connected == 3


async def test_http2_request_that_the_server_did_not_come_to_is_surely_not_done(
    client: Http2, service: ApnsService
) -> None:
    """GOAWAY names the last stream: those behind it are free, those before it are answered."""
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]
    asked = [asyncio.create_task(ask(client)) for _ in range(3)]
    await eventually(lambda: len(service.taken) == 3, 60)

    # What h2's server half does not do itself: go away, and answer all the same.
    (connection,) = service.connections
    state = connection.core.state_machine.state
    service.go_away(3, "maintenance", is_over=False)
    connection.core.state_machine.state = state
    with pytest.raises(NotReached, match="maintenance"):
        await asked[2]
    fresh = asyncio.create_task(ask(client, "/other"))
    assert (await fresh).is_ok
    gate.set()

    assert [(await one).status for one in asked[:2]] == [200, 200]
    assert service.connected == 2
    await eventually(lambda: len(service.connections) == 1, 60, "the old one closed")


async def test_http2_goodbye_and_answer_in_one_piece_are_both_heard(
    client: Http2, service: ApnsService
) -> None:
    """The core stops at a GOAWAY; what came with it must not be lost."""
    gate = asyncio.Event()
    service.replies["/x"] = [Reply(200, gate=gate)]
    asked = [asyncio.create_task(ask(client)) for _ in range(2)]
    await eventually(lambda: len(service.taken) == 2, 60)

    (connection,) = service.connections
    state = connection.core.state_machine.state
    connection.core.close_connection(0, b"", 1)
    connection.core.state_machine.state = state
    connection.core.send_headers(1, [(":status", "202")], end_stream=True)
    connection.flush()

    assert (await asked[0]).status == 202
    with pytest.raises(NotReached):
        await asked[1]


@pytest.mark.parametrize(
    ("code", "kind"), [("REFUSED_STREAM", NotReached), ("INTERNAL_ERROR", Unavailable)]
)
async def test_http2_stream_that_is_reset_fails_alone(
    client: Http2, service: ApnsService, code: str, kind: type[Exception]
) -> None:
    """A refused stream is surely not done, any other may be."""
    service.replies["/x"] = [Reply(RESET, body=code, times=1)]

    with pytest.raises(Unavailable, match=code) as failed:
        await ask(client)

    assert type(failed.value) is kind
    assert (await ask(client)).is_ok
    assert service.connected == 1


async def test_http2_request_whose_connection_breaks_may_have_been_done(
    client: Http2, service: ApnsService
) -> None:
    """The outcome is unknown."""
    service.replies["/x"] = [Reply(200, gate=asyncio.Event())]
    asked = asyncio.create_task(ask(client))
    await eventually(lambda: service.taken, 60)

    service.drop()

    with pytest.raises(Unavailable) as failed:
        await asked
    assert not isinstance(failed.value, NotReached)


async def test_http2_way_that_is_gone_without_a_word_is_noticed_before_the_next_request(
    service: ApnsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was not answered in time is a reason to ask whether anybody is there."""
    monkeypatch.setattr("chatserver.outbound.http2_connection.PING_S", 0.2)
    async with open_http2(service.url, OPEN) as client:
        await ask(client)
        service.go_deaf()
        with pytest.raises(Unavailable) as failed:
            await ask(client, timeout_s=0.2)
        assert not isinstance(failed.value, NotReached)

        assert (await ask(client)).is_ok
        assert service.connected == 2


async def test_http2_quiet_connection_is_asked_and_kept_if_it_answers(
    service: ApnsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping costs less than a handshake."""
    monkeypatch.setattr(
        "chatserver.outbound.http2_connection.PING_S", 60.0
    )  # it answers, at its pace
    async with open_http2(service.url, OPEN, ping_after_s=0.0) as client:
        assert [(await ask(client)).status for _ in range(3)] == [200] * 3
    assert service.connected == 1
    await eventually(lambda: not service.connections, 60, "closed behind the client")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",  # a frame of 16 MB
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x",  # data of no stream
        b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",  # headers that end in the middle
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_http2_server_that_breaks_the_protocol_is_left_and_asked_anew(
    client: Http2, service: ApnsService, nonsense: bytes
) -> None:
    """Requests in flight have an unknown outcome."""
    service.replies["/x"] = [Reply(200, gate=asyncio.Event(), times=1)]
    asked = asyncio.create_task(ask(client))
    await eventually(lambda: service.taken, 60)

    service.connections[0].transport.write(nonsense)

    with pytest.raises(Unavailable) as failed:
        await asked
    assert not isinstance(failed.value, NotReached)
    assert (await ask(client)).is_ok
    assert service.connected == 2


async def test_http2_answer_at_the_limit_is_taken_and_over_it_refused(
    client: Http2, service: ApnsService
) -> None:
    """The server does not decide how much is buffered."""
    service.replies["/x"] = [Reply(400, body="x" * 200, times=1), Reply(400, body="x" * 201)]

    assert len((await ask(client)).body) == 200
    with pytest.raises(Unavailable, match="200 bytes"):
        await ask(client)


async def test_http2_server_that_is_not_trusted_or_speaks_something_else_is_not_asked(
    service: ApnsService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with an untrusted certificate, nor by HTTP/1.1, nor without a listener."""
    (tmp_path / "other").mkdir()
    async with open_apns_service(tmp_path / "other", "http/1.1") as other:
        nobody = f"https://127.0.0.1:{free_port()}"
        trusted = str(service.certificate)
        for url, certificate in (
            (service.url, str(other.certificate)),
            (other.url, str(other.certificate)),
            (nobody, trusted),
            (service.url.replace("127.0.0.1", "localhost"), trusted),  # not its name
        ):
            monkeypatch.setenv("SSL_CERT_FILE", certificate)
            async with open_http2(url, OPEN) as client:
                with pytest.raises(NotReached):
                    await ask(client)
        assert service.taken == other.taken == []


async def test_http2_address_is_judged_when_it_is_called(service: ApnsService) -> None:
    """The operator's own URL, too, reaches what is private only where it is allowed."""
    looked_up: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    url = service.url.replace("127.0.0.1", "apns.example")
    async with open_http2(url, config.Outbound(), lookup) as client:
        with pytest.raises(BadRequest):
            await ask(client)
    assert service.connected == 0
    async with open_http2(url, OPEN, lookup) as client:
        assert (await ask(client)).is_ok
    assert looked_up == ["apns.example"] * 2
    assert service.taken[0].headers[":authority"] == url.removeprefix("https://")


def test_http2_url_is_a_server_by_https_and_no_more() -> None:
    """There is no path to choose, and nothing goes in the clear."""
    for bad in ("http://apns.example", "https://apns.example/x", "https://a@b", "apns.example"):
        with pytest.raises(BadRequest):
            parse_origin(bad)
    assert parse_origin("https://apns.example").port == 443
