"""The model providers with stub servers that use the real wire formats."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.text_validation import BodyBounds
from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.companion_options import NO_OPTIONS
from chatserver.features.companions.providers.interface import (
    Delta,
    End,
    Finish,
    ModelMessage,
    ModelProvider,
    ModelRequest,
)
from chatserver.features.companions.providers.model_call import (
    CallLimits,
    stream_response,
)
from tests.integration.features.companions.model_fixtures import Model, bedrock_at, openai_at
from tests.support.servers.model_servers import (
    DONE,
    SSE,
    Cut,
    Hang,
    ModelServer,
    Refuse,
    Step,
    bedrock_answer,
    block_delta,
    chunk,
    event,
    exception_event,
    openai_answer,
)
from tests.support.servers.processes import eventually

ASK = ModelRequest("model.one", "Be kind.", (ModelMessage("user", "Hello"),), 50, NO_OPTIONS)
PACE = CallLimits(first_delta_s=20.0, between_s=20.0, answer_s=60.0, attempts_max=3, backoff_s=0.01)
BOUNDS = BodyBounds()


async def collect_response(provider: ModelProvider, **pace: Any) -> tuple[str, Finish]:
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


async def test_bedrock_response_streams_with_usage(bedrock: Model) -> None:
    """The request is a ConverseStream, and every delta is returned."""
    bedrock.server.set_responses(bedrock_answer("Hel", "lo, ", "wörld"))
    pieces = [piece async for piece in bedrock.provider.stream(ASK)]

    assert pieces == [Delta("Hel"), Delta("lo, "), Delta("wörld"), Finish("done", 7, 3)]
    ((path, body),) = bedrock.server.calls
    assert path == "/model/model.one/converse-stream"
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "Hello"}]}],
        "system": [{"text": "Be kind."}],
        "inferenceConfig": {"maxTokens": 50},
    }
    assert bedrock.server.headers[0]["Authorization"].startswith("AWS4-HMAC-SHA256")


async def test_openai_response_streams_with_usage(openai: Model) -> None:
    """The request is a chat completion, and every delta is returned."""
    openai.server.set_responses(openai_answer("Hel", "lo, ", "wörld"))
    pieces = [piece async for piece in openai.provider.stream(ASK)]

    assert pieces == [Delta("Hel"), Delta("lo, "), Delta("wörld"), Finish("done", 7, 3)]
    ((path, body),) = openai.server.calls
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
    assert openai.server.headers[0]["Authorization"] == "Bearer k"


def _damaged() -> bytes:
    frame = bytearray(block_delta("damaged"))
    frame[-6] ^= 1  # in the payload, so that its CRC is wrong
    return bytes(frame)


Responses = list[list[Step]]
BEDROCK_BEGIN = event("messageStart", role="assistant") + block_delta("so far")
OPENAI_BEGIN = chunk({"content": "so far"})
OPENAI_END = chunk({}, "stop") + DONE
THROTTLED_EVENT = exception_event("throttlingException")
THROTTLED = Refuse(429, "ThrottlingException")
UNAVAILABLE = Refuse(503, "ServiceUnavailableException")
YES, BROKEN = ("yes", Finish("done", 7, 3)), ("so far", Finish("broken"))
STOP_REASONS: dict[str, End] = {
    "max_tokens": "length",
    "stop_sequence": "done",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}
# By provider and case: the responses of the server (the last one is repeated), what the caller
# gets, and the number of requests. Requests are repeated only before the first delta.
BEDROCK: dict[str, tuple[Responses, Any, int]] = {
    **{
        stop: ([[bedrock_answer("so far", stop=stop)]], ("so far", Finish(end, 7, 3)), 1)
        for stop, end in STOP_REASONS.items()
    },
    "throttled": ([[THROTTLED], [THROTTLED], [bedrock_answer("yes")]], YES, 3),
    "unavailable": ([[UNAVAILABLE], [UNAVAILABLE], [bedrock_answer("yes")]], YES, 3),
    "throttled event": ([[THROTTLED_EVENT], [bedrock_answer("yes")]], YES, 2),
    "always throttled": ([[THROTTLED]], Overloaded, 3),
    "invalid request": ([[Refuse(400, "ValidationException")]], ConfigError, 1),
    "denied": ([[Refuse(403, "AccessDeniedException")]], ConfigError, 1),
    "exception": ([[BEDROCK_BEGIN, exception_event("modelStreamErrorException")]], BROKEN, 1),
    "late throttling": ([[BEDROCK_BEGIN, THROTTLED_EVENT]], BROKEN, 1),
    "cut": ([[BEDROCK_BEGIN, Cut()]], BROKEN, 1),
    "ended": ([[BEDROCK_BEGIN]], BROKEN, 1),
    "damaged": ([[BEDROCK_BEGIN, _damaged()]], BROKEN, 1),
    "half a frame": ([[BEDROCK_BEGIN, block_delta("half a frame")[:-9]]], BROKEN, 1),
}
OPENAI: dict[str, tuple[Responses, Any, int]] = {
    "without usage": ([[chunk({"content": "hi"}) + OPENAI_END]], ("hi", Finish("done")), 1),
    **{
        end: ([[openai_answer("so far", finish=finish)]], ("so far", Finish(end, 7, 3)), 1)
        for finish, end in {"length": "length", "content_filter": "refused"}.items()
    },
    # The text of a refusal is shown to the user.
    "no": ([[chunk({"refusal": "No."}) + OPENAI_END]], ("No.", Finish("refused")), 1),
    # The provider retries; the retries of the OpenAI SDK are disabled.
    **{
        str(status): ([[Refuse(status)], [openai_answer("yes")]], YES, 2)
        for status in (429, 500, 503)
    },
    **{str(status): ([[Refuse(status)]], ConfigError, 1) for status in (400, 401, 404)},
    "cut": ([[OPENAI_BEGIN, Cut()]], BROKEN, 1),
    "ended": ([[OPENAI_BEGIN]], BROKEN, 1),
    "nonsense": ([[OPENAI_BEGIN, b"data: {not json\n\n"]], BROKEN, 1),
    "error": (
        [[OPENAI_BEGIN, b'data: {"error": {"message": "overloaded", "code": 500}}\n\n']],
        BROKEN,
        1,
    ),
}


@pytest.mark.parametrize(
    ("model", "case"),
    [("bedrock", case) for case in BEDROCK] + [("openai", case) for case in OPENAI],
    indirect=["model"],
)
async def test_response_or_error_of_the_server_is_returned(model: Model, case: str) -> None:
    """A response that breaks keeps its text; an error that an operator has to fix is final."""
    responses, expected, calls = (BEDROCK if model.name == "bedrock" else OPENAI)[case]
    for steps in responses:
        model.server.set_responses(*steps)

    if isinstance(expected, type):
        with pytest.raises(expected):
            await collect_response(model.provider)
    else:
        assert await collect_response(model.provider) == expected

    assert len(model.server.calls) == calls


@pytest.mark.parametrize("model", ["bedrock", "openai"], indirect=True)
async def test_model_that_stalls_is_disconnected(model: Model) -> None:
    """The text received so far is kept."""
    model.server.set_responses(
        block_delta("so far") if model.name == "bedrock" else OPENAI_BEGIN, Hang()
    )

    response = await collect_response(model.provider, between_s=0.1)

    assert response == ("so far", Finish("late"))
    await eventually(lambda: model.server.gone == 1)


@pytest.mark.parametrize("model", ["bedrock", "openai"], indirect=True)
async def test_model_that_never_begins_is_unavailable(model: Model) -> None:
    """Each attempt has a deadline, and the number of attempts is limited."""
    model.server.set_responses(b"", Hang())
    counting = CountingProvider(model.provider)

    with pytest.raises(Unavailable):
        await collect_response(counting, first_delta_s=0.3, attempts_max=2)

    assert counting.attempts == 2
    assert len(model.server.calls) <= 2  # an attempt may end before its request is sent


class CountingProvider:
    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self.attempts = 0

    def stream(self, ask: ModelRequest) -> AsyncGenerator[Delta | Finish]:
        self.attempts += 1
        return self._provider.stream(ask)


async def test_providers_without_server_are_unavailable() -> None:
    server = ModelServer(SSE, "http://127.0.0.1:9")
    for open_provider in (bedrock_at, openai_at):
        async with open_provider(server) as provider:
            with pytest.raises(Unavailable):
                await collect_response(provider, attempts_max=1)
