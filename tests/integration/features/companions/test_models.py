"""The providers of models, against servers that stream_response their wire formats."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from chatserver.config import Companions
from chatserver.domain.clock import SystemClock
from chatserver.domain.text import BodyBounds
from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.bedrock import open_bedrock
from chatserver.features.companions.providers.bounded_response import (
    Pace,
    ResponseEnd,
    stream_response,
)
from chatserver.features.companions.providers.interface import (
    Ask,
    Delta,
    Finish,
    ModelMessage,
    Provider,
)
from chatserver.features.companions.providers.openai_api import OpenAiApi
from tests.support.servers.model_servers import (
    DONE,
    EVENT_STREAM,
    SSE,
    Cut,
    Hang,
    ModelServer,
    Refuse,
    bedrock_answer,
    block_delta,
    chunk,
    event,
    exception_event,
    open_model_server,
    openai_answer,
)
from tests.support.servers.processes import eventually

ASK = Ask("model.one", "Be kind.", (ModelMessage("user", "Hello"),), 50)
PACE = Pace(first_delta_s=20.0, between_s=20.0, answer_s=60.0, attempts_max=3, backoff_s=0.01)
BOUNDS = BodyBounds()


@pytest.fixture
async def bedrock_server() -> AsyncIterator[ModelServer]:
    """A server with the API of Bedrock."""
    async with open_model_server(EVENT_STREAM) as server:
        yield server


@pytest.fixture
async def openai_server() -> AsyncIterator[ModelServer]:
    """A server with the API of OpenAI."""
    async with open_model_server(SSE) as server:
        yield server


@contextlib.asynccontextmanager
async def bedrock_at(server: ModelServer) -> AsyncIterator[Provider]:
    """The provider, pointed at a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        async with open_bedrock(Companions()) as provider:
            yield provider


@contextlib.asynccontextmanager
async def openai_at(server: ModelServer) -> AsyncIterator[Provider]:
    """The provider, pointed at a server."""
    provider = OpenAiApi(Companions(openai_url=f"{server.url}/v1", openai_key=SecretStr("k")))
    try:
        yield provider
    finally:
        await provider.close()


async def collect_response(provider: Provider, **pace: Any) -> tuple[str, ResponseEnd]:
    """Return the whole text, and how it ended."""
    text, spoken = "", None
    async with contextlib.aclosing(
        stream_response(provider, ASK, dataclasses.replace(PACE, **pace), BOUNDS, SystemClock())
    ) as pieces:
        async for piece in pieces:
            if isinstance(piece, Delta):
                text += piece.text
            else:
                spoken = piece
    assert spoken is not None
    return text, spoken


# Bedrock


async def test_bedrock_answer_streams_with_its_usage(bedrock_server: ModelServer) -> None:
    """The request is that of ConverseStream, and every delta arrives unchanged."""
    bedrock_server.will(bedrock_answer("Hel", "lo, ", "wörld"))
    async with bedrock_at(bedrock_server) as provider:
        pieces = [piece async for piece in provider.stream(ASK)]

    assert pieces == [Delta("Hel"), Delta("lo, "), Delta("wörld"), Finish("done", 7, 3)]
    ((path, body),) = bedrock_server.calls
    assert path == "/model/model.one/converse-stream"
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "Hello"}]}],
        "system": [{"text": "Be kind."}],
        "inferenceConfig": {"maxTokens": 50},
    }
    assert bedrock_server.headers[0]["Authorization"].startswith("AWS4-HMAC-SHA256")


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ("max_tokens", "length"),
        ("stop_sequence", "done"),
        ("guardrail_intervened", "refused"),
        ("content_filtered", "refused"),
    ],
)
async def test_bedrock_end_is_told(bedrock_server: ModelServer, stop: str, end: str) -> None:
    """Why a model stopped is part of the answer."""
    bedrock_server.will(bedrock_answer("so far", stop=stop))
    async with bedrock_at(bedrock_server) as provider:
        assert await collect_response(provider) == ("so far", ResponseEnd(end, 7, 3))  # type: ignore[arg-type]  # a word of the table


@pytest.mark.parametrize(
    "refusal",
    [Refuse(429, "ThrottlingException"), Refuse(503, "ServiceUnavailableException")],
)
async def test_bedrock_throttled_is_asked_again(
    bedrock_server: ModelServer, refusal: Refuse
) -> None:
    """No text was delivered yet, so a retry repeats nothing."""
    bedrock_server.will(refusal)
    bedrock_server.will(refusal)
    bedrock_server.will(bedrock_answer("at last"))
    async with bedrock_at(bedrock_server) as provider:
        assert (await collect_response(provider))[0] == "at last"

    assert len(bedrock_server.calls) == 3


async def test_bedrock_throttled_for_ever_is_given_up(bedrock_server: ModelServer) -> None:
    """After `attempts_max` tries, and no more."""
    bedrock_server.will(Refuse(429, "ThrottlingException"))
    async with bedrock_at(bedrock_server) as provider:
        with pytest.raises(Overloaded):
            await collect_response(provider)

    assert len(bedrock_server.calls) == 3


@pytest.mark.parametrize("name", ["ValidationException", "AccessDeniedException"])
async def test_bedrock_refused_request_is_not_repeated(
    bedrock_server: ModelServer, name: str
) -> None:
    """An error that only an operator can fix is raised at once."""
    bedrock_server.will(Refuse(400 if name.startswith("V") else 403, name))
    async with bedrock_at(bedrock_server) as provider:
        with pytest.raises(ConfigError):
            await collect_response(provider)

    assert len(bedrock_server.calls) == 1


def _damaged() -> bytes:
    whole = bytearray(block_delta("damaged"))
    whole[-6] ^= 1  # in the payload: its CRC tells
    return bytes(whole)


BEDROCK_BREAKS: dict[str, list[Any]] = {
    "exception": [exception_event("modelStreamErrorException")],
    "throttled": [exception_event("throttlingException")],
    "cut": [Cut()],
    "ended": [],
    "damaged": [_damaged()],
    "half": [block_delta("half a frame")[:-9]],
}


@pytest.mark.parametrize("how", sorted(BEDROCK_BREAKS))
async def test_bedrock_stream_that_dies_midway_keeps_what_was_said(
    bedrock_server: ModelServer, how: str
) -> None:
    """After any failure, the delivered text is kept and marked; there is no retry."""
    steps = BEDROCK_BREAKS[how]
    bedrock_server.will(event("messageStart", role="assistant") + block_delta("so far"), *steps)
    async with bedrock_at(bedrock_server) as provider:
        assert await collect_response(provider) == ("so far", ResponseEnd("broken"))

    assert len(bedrock_server.calls) == 1


async def test_bedrock_exception_before_the_first_delta_is_asked_again(
    bedrock_server: ModelServer,
) -> None:
    """An error that comes as an event is one like any other."""
    bedrock_server.will(exception_event("throttlingException"))
    bedrock_server.will(bedrock_answer("yes"))
    async with bedrock_at(bedrock_server) as provider:
        assert (await collect_response(provider))[0] == "yes"


# OpenAI


async def test_openai_answer_streams_with_its_usage(openai_server: ModelServer) -> None:
    """The request is that of chat completions, and every delta arrives unchanged."""
    openai_server.will(openai_answer("Hel", "lo, ", "wörld"))
    async with openai_at(openai_server) as provider:
        pieces = [piece async for piece in provider.stream(ASK)]

    assert pieces == [Delta("Hel"), Delta("lo, "), Delta("wörld"), Finish("done", 7, 3)]
    ((path, body),) = openai_server.calls
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "model.one",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hello"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
    }
    assert openai_server.headers[0]["Authorization"] == "Bearer k"


async def test_openai_server_without_usage_is_borne_with(openai_server: ModelServer) -> None:
    """Not every server that speaks so counts."""
    openai_server.will(chunk({"content": "hi"}) + chunk({}, "stop") + DONE)
    async with openai_at(openai_server) as provider:
        assert await collect_response(provider) == ("hi", ResponseEnd("done"))


@pytest.mark.parametrize(
    ("steps", "heard"),
    [
        ([openai_answer("so far", finish="length")], ("so far", "length")),
        ([openai_answer("so far", finish="content_filter")], ("so far", "refused")),
        (
            [chunk({"refusal": "I cannot."}) + chunk({}, "stop") + DONE],
            ("I cannot.", "refused"),
        ),
    ],
)
async def test_openai_end_is_told(
    openai_server: ModelServer, steps: list[Any], heard: tuple[str, str]
) -> None:
    """Why a model stopped is part of the answer; its refusal is text for the user."""
    openai_server.will(*steps)
    async with openai_at(openai_server) as provider:
        text, spoken = await collect_response(provider)

    assert (text, spoken.end) == heard


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_openai_throttled_is_asked_again(openai_server: ModelServer, status: int) -> None:
    """By us alone: the SDK does not try behind our back."""
    openai_server.will(Refuse(status))
    openai_server.will(openai_answer("at last"))
    async with openai_at(openai_server) as provider:
        assert (await collect_response(provider))[0] == "at last"

    assert len(openai_server.calls) == 2


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_openai_refused_request_is_not_repeated(
    openai_server: ModelServer, status: int
) -> None:
    """An error that only an operator can fix is raised at once."""
    openai_server.will(Refuse(status))
    async with openai_at(openai_server) as provider:
        with pytest.raises(ConfigError):
            await collect_response(provider)

    assert len(openai_server.calls) == 1


OPENAI_BREAKS: dict[str, list[Any]] = {
    "cut": [Cut()],
    "ended": [],
    "nonsense": [b"data: {not json\n\n"],
    "error": [b'data: {"error": {"message": "overloaded", "code": 500}}\n\n'],
}


@pytest.mark.parametrize("how", sorted(OPENAI_BREAKS))
async def test_openai_stream_that_dies_midway_keeps_what_was_said(
    openai_server: ModelServer, how: str
) -> None:
    """After any failure, the delivered text is kept and marked; there is no retry."""
    openai_server.will(chunk({"content": "so far"}), *OPENAI_BREAKS[how])
    async with openai_at(openai_server) as provider:
        assert await collect_response(provider) == ("so far", ResponseEnd("broken"))

    assert len(openai_server.calls) == 1


# both


@pytest.mark.parametrize("kind", ["bedrock", "openai"])
async def test_model_that_stalls_is_let_go(
    bedrock_server: ModelServer, openai_server: ModelServer, kind: str
) -> None:
    """The text so far is kept, and the connection is closed."""
    server, at, said = _both(kind, bedrock_server, openai_server)
    server.will(said, Hang())
    async with at(server) as provider:
        assert await collect_response(provider, between_s=0.1) == (
            "so far",
            ResponseEnd("late"),
        )
        await eventually(lambda: server.gone == 1)


@pytest.mark.parametrize("kind", ["bedrock", "openai"])
async def test_model_that_never_begins_is_unavailable(
    bedrock_server: ModelServer, openai_server: ModelServer, kind: str
) -> None:
    """Each try has its deadline, and there are so many and no more."""
    server, at, _ = _both(kind, bedrock_server, openai_server)
    server.will(b"", Hang())
    async with at(server) as provider:
        counted = Counted(provider)
        with pytest.raises(Unavailable):
            await collect_response(counted, first_delta_s=0.3, attempts_max=2)

    assert counted.tries == 2
    assert len(server.calls) <= 2  # a try may be over before it comes to the server


class Counted:
    """A provider, and how often it was asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.tries = 0

    def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
        """See `Provider.stream`."""
        self.tries += 1
        return self._provider.stream(ask)


def _both(
    kind: str, bedrock_server: ModelServer, openai_server: ModelServer
) -> tuple[ModelServer, Callable[[ModelServer], Any], bytes]:
    if kind == "bedrock":
        return bedrock_server, bedrock_at, block_delta("so far")
    return openai_server, openai_at, chunk({"content": "so far"})


async def test_providers_nobody_listens_is_unavailable() -> None:
    """A wrong address does not look like an answer."""
    nowhere = ModelServer(SSE, "http://127.0.0.1:9")
    for at in (bedrock_at, openai_at):
        async with at(nowhere) as provider:
            with pytest.raises(Unavailable):
                await collect_response(provider, attempts_max=1)
