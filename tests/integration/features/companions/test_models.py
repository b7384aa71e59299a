"""The model providers with stub servers that use the real wire formats."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from chatserver.domain.clock import SystemClock
from chatserver.domain.text_validation import BodyBounds
from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.companion_options import NO_OPTIONS
from chatserver.features.companions.providers.bedrock import open_bedrock
from chatserver.features.companions.providers.interface import (
    Delta,
    Finish,
    ModelMessage,
    ModelProvider,
    ModelRequest,
)
from chatserver.features.companions.providers.model_call import (
    CallLimits,
    stream_response,
)
from chatserver.features.companions.providers.openai_api import OpenAiApi
from chatserver.features.companions.settings import Companions
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

ASK = ModelRequest("model.one", "Be kind.", (ModelMessage("user", "Hello"),), 50, NO_OPTIONS)
PACE = CallLimits(first_delta_s=20.0, between_s=20.0, answer_s=60.0, attempts_max=3, backoff_s=0.01)
BOUNDS = BodyBounds()


@pytest.fixture
async def bedrock_server() -> AsyncIterator[ModelServer]:
    """A stub server with the API of Bedrock."""
    async with open_model_server(EVENT_STREAM) as server:
        yield server


@pytest.fixture
async def openai_server() -> AsyncIterator[ModelServer]:
    """A stub server with the API of OpenAI."""
    async with open_model_server(SSE) as server:
        yield server


@contextlib.asynccontextmanager
async def bedrock_at(server: ModelServer) -> AsyncIterator[ModelProvider]:
    """Open the Bedrock provider on a stub server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        async with open_bedrock(Companions()) as provider:
            yield provider


@contextlib.asynccontextmanager
async def openai_at(server: ModelServer) -> AsyncIterator[ModelProvider]:
    """Open the OpenAI provider on a stub server."""
    provider = OpenAiApi(Companions(openai_url=f"{server.url}/v1", openai_key=SecretStr("k")))
    try:
        yield provider
    finally:
        await provider.close()


async def collect_response(provider: ModelProvider, **pace: Any) -> tuple[str, Finish]:
    """Return the text and the end of a response."""
    text, end = "", None
    async with contextlib.aclosing(
        stream_response(provider, ASK, dataclasses.replace(PACE, **pace), BOUNDS, SystemClock())
    ) as pieces:
        async for piece in pieces:
            if isinstance(piece, Delta):
                text += piece.text
            else:
                end = piece
    assert end is not None
    return text, end


# Bedrock


async def test_bedrock_response_streams_with_usage(bedrock_server: ModelServer) -> None:
    """The request is a ConverseStream, and every delta is returned."""
    bedrock_server.set_responses(bedrock_answer("Hel", "lo, ", "wörld"))
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
async def test_bedrock_stop_reason_is_returned(
    bedrock_server: ModelServer, stop: str, end: str
) -> None:
    bedrock_server.set_responses(bedrock_answer("so far", stop=stop))
    async with bedrock_at(bedrock_server) as provider:
        assert await collect_response(provider) == ("so far", Finish(end, 7, 3))  # type: ignore[arg-type]  # a literal


@pytest.mark.parametrize(
    "refusal",
    [Refuse(429, "ThrottlingException"), Refuse(503, "ServiceUnavailableException")],
)
async def test_bedrock_throttling_is_retried(bedrock_server: ModelServer, refusal: Refuse) -> None:
    """Before the first delta a retry repeats no text."""
    bedrock_server.set_responses(refusal)
    bedrock_server.set_responses(refusal)
    bedrock_server.set_responses(bedrock_answer("at last"))
    async with bedrock_at(bedrock_server) as provider:
        assert (await collect_response(provider))[0] == "at last"

    assert len(bedrock_server.calls) == 3


async def test_bedrock_retries_are_limited(bedrock_server: ModelServer) -> None:
    """At most `attempts_max` requests are sent."""
    bedrock_server.set_responses(Refuse(429, "ThrottlingException"))
    async with bedrock_at(bedrock_server) as provider:
        with pytest.raises(Overloaded):
            await collect_response(provider)

    assert len(bedrock_server.calls) == 3


@pytest.mark.parametrize("name", ["ValidationException", "AccessDeniedException"])
async def test_bedrock_configuration_error_is_not_retried(
    bedrock_server: ModelServer, name: str
) -> None:
    """An error that an operator has to fix is raised at once."""
    bedrock_server.set_responses(Refuse(400 if name.startswith("V") else 403, name))
    async with bedrock_at(bedrock_server) as provider:
        with pytest.raises(ConfigError):
            await collect_response(provider)

    assert len(bedrock_server.calls) == 1


def _damaged() -> bytes:
    frame = bytearray(block_delta("damaged"))
    frame[-6] ^= 1  # in the payload, so that its CRC is wrong
    return bytes(frame)


BEDROCK_BREAKS: dict[str, list[Any]] = {
    "exception": [exception_event("modelStreamErrorException")],
    "throttled": [exception_event("throttlingException")],
    "cut": [Cut()],
    "ended": [],
    "damaged": [_damaged()],
    "half": [block_delta("half a frame")[:-9]],
}


@pytest.mark.parametrize("fault", sorted(BEDROCK_BREAKS))
async def test_bedrock_stream_that_breaks_keeps_its_text(
    bedrock_server: ModelServer, fault: str
) -> None:
    """After any failure, the received text is kept and marked, and there is no retry."""
    steps = BEDROCK_BREAKS[fault]
    bedrock_server.set_responses(
        event("messageStart", role="assistant") + block_delta("so far"), *steps
    )
    async with bedrock_at(bedrock_server) as provider:
        assert await collect_response(provider) == ("so far", Finish("broken"))

    assert len(bedrock_server.calls) == 1


async def test_bedrock_exception_event_before_the_first_delta_is_retried(
    bedrock_server: ModelServer,
) -> None:
    """An error in the event stream is handled like one in the response status."""
    bedrock_server.set_responses(exception_event("throttlingException"))
    bedrock_server.set_responses(bedrock_answer("yes"))
    async with bedrock_at(bedrock_server) as provider:
        assert (await collect_response(provider))[0] == "yes"


# OpenAI


async def test_openai_response_streams_with_usage(openai_server: ModelServer) -> None:
    """The request is a chat completion, and every delta is returned."""
    openai_server.set_responses(openai_answer("Hel", "lo, ", "wörld"))
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


async def test_openai_server_without_usage_is_supported(openai_server: ModelServer) -> None:
    """Some servers with this API do not count tokens."""
    openai_server.set_responses(chunk({"content": "hi"}) + chunk({}, "stop") + DONE)
    async with openai_at(openai_server) as provider:
        assert await collect_response(provider) == ("hi", Finish("done"))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([openai_answer("so far", finish="length")], ("so far", "length")),
        ([openai_answer("so far", finish="content_filter")], ("so far", "refused")),
        (
            [chunk({"refusal": "I cannot."}) + chunk({}, "stop") + DONE],
            ("I cannot.", "refused"),
        ),
    ],
)
async def test_openai_finish_reason_is_returned(
    openai_server: ModelServer, steps: list[Any], expected: tuple[str, str]
) -> None:
    """The text of a refusal is shown to the user."""
    openai_server.set_responses(*steps)
    async with openai_at(openai_server) as provider:
        text, end = await collect_response(provider)

    assert (text, end.end) == expected


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_openai_throttling_is_retried(openai_server: ModelServer, status: int) -> None:
    """The provider retries; the retries of the OpenAI SDK are disabled."""
    openai_server.set_responses(Refuse(status))
    openai_server.set_responses(openai_answer("at last"))
    async with openai_at(openai_server) as provider:
        assert (await collect_response(provider))[0] == "at last"

    assert len(openai_server.calls) == 2


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_openai_configuration_error_is_not_retried(
    openai_server: ModelServer, status: int
) -> None:
    """An error that an operator has to fix is raised at once."""
    openai_server.set_responses(Refuse(status))
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


@pytest.mark.parametrize("fault", sorted(OPENAI_BREAKS))
async def test_openai_stream_that_breaks_keeps_its_text(
    openai_server: ModelServer, fault: str
) -> None:
    """After any failure, the received text is kept and marked, and there is no retry."""
    openai_server.set_responses(chunk({"content": "so far"}), *OPENAI_BREAKS[fault])
    async with openai_at(openai_server) as provider:
        assert await collect_response(provider) == ("so far", Finish("broken"))

    assert len(openai_server.calls) == 1


# both


@pytest.mark.parametrize("kind", ["bedrock", "openai"])
async def test_model_that_stalls_is_disconnected(
    bedrock_server: ModelServer, openai_server: ModelServer, kind: str
) -> None:
    """The text received so far is kept."""
    server, open_provider, first_delta = _provider_of(kind, bedrock_server, openai_server)
    server.set_responses(first_delta, Hang())
    async with open_provider(server) as provider:
        assert await collect_response(provider, between_s=0.1) == (
            "so far",
            Finish("late"),
        )
        await eventually(lambda: server.gone == 1)


@pytest.mark.parametrize("kind", ["bedrock", "openai"])
async def test_model_that_never_begins_is_unavailable(
    bedrock_server: ModelServer, openai_server: ModelServer, kind: str
) -> None:
    """Each attempt has a deadline, and the number of attempts is limited."""
    server, open_provider, _ = _provider_of(kind, bedrock_server, openai_server)
    server.set_responses(b"", Hang())
    async with open_provider(server) as provider:
        counting = CountingProvider(provider)
        with pytest.raises(Unavailable):
            await collect_response(counting, first_delta_s=0.3, attempts_max=2)

    assert counting.attempts == 2
    assert len(server.calls) <= 2  # an attempt may end before its request is sent


class CountingProvider:
    """A provider that counts its requests."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self.attempts = 0

    def stream(self, ask: ModelRequest) -> AsyncGenerator[Delta | Finish]:
        """See `ModelProvider.stream`."""
        self.attempts += 1
        return self._provider.stream(ask)


def _provider_of(
    kind: str, bedrock_server: ModelServer, openai_server: ModelServer
) -> tuple[ModelServer, Callable[[ModelServer], Any], bytes]:
    if kind == "bedrock":
        return bedrock_server, bedrock_at, block_delta("so far")
    return openai_server, openai_at, chunk({"content": "so far"})


async def test_providers_without_server_are_unavailable() -> None:
    server = ModelServer(SSE, "http://127.0.0.1:9")
    for open_provider in (bedrock_at, openai_at):
        async with open_provider(server) as provider:
            with pytest.raises(Unavailable):
                await collect_response(provider, attempts_max=1)
