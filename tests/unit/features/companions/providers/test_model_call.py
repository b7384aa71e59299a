"""A model's response within its limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.clock import SystemClock
from chatserver.domain.text_validation import BodyBounds
from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.companion_options import NO_OPTIONS
from chatserver.features.companions.providers.interface import (
    Delta,
    Finish,
    ModelMessage,
    ModelRequest,
)
from chatserver.features.companions.providers.model_call import (
    CallLimits,
    RemainingLength,
    stream_response,
)
from chatserver.features.companions.providers.scripted import Scripted
from chatserver.features.companions.providers.token_estimates import cut_to_tokens, estimate_tokens

LIMITS = CallLimits(20.0, 20.0, 60.0, 3, 0.001)


def request_for(model: str, text: str = "hello", tokens: int = 100) -> ModelRequest:
    return ModelRequest(model, "", (ModelMessage("user", text),), tokens, NO_OPTIONS)


async def collect_response(
    request: ModelRequest, limits: CallLimits = LIMITS, bounds: BodyBounds | None = None
) -> tuple[str, Finish]:
    pieces = [
        piece
        async for piece in stream_response(
            Scripted(0), request, limits, bounds or BodyBounds(), SystemClock()
        )
    ]
    *deltas, last = pieces
    assert isinstance(last, Finish)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), last


async def test_response_is_complete() -> None:
    """It ends when the model ends its output."""
    text, end = await collect_response(request_for("echo", "how are you?"))

    assert (text, end.end) == ("You said: how are you?", "done")
    assert end.tokens_out == 5


async def test_scripted_response_is_deterministic() -> None:
    assert await collect_response(request_for("story:7")) == await collect_response(
        request_for("story:7")
    )


async def test_throttled_request_is_retried_before_the_first_piece() -> None:
    """The number of attempts is limited."""
    assert (await collect_response(request_for("throttle:2")))[0] == "You said: hello"
    with pytest.raises(Overloaded):
        await collect_response(request_for("throttle:3"))


async def test_endless_response_is_cut_at_its_limit() -> None:
    """The limit is in characters and in tokens, and the end is marked."""
    text, end = await collect_response(
        request_for("endless", tokens=10_000), bounds=BodyBounds(25, 1000)
    )
    assert (len(text), end) == (25, Finish("length"))

    text, end = await collect_response(request_for("endless", tokens=2))
    assert (len(text), end) == (32, Finish("length"))


async def test_broken_response_keeps_its_text() -> None:
    """It is marked as broken and not retried."""
    assert await collect_response(request_for("dies:2")) == ("word1 word2 ", Finish("broken"))


async def test_stalled_response_keeps_its_text() -> None:
    """It is marked as late after its deadline."""
    limits = CallLimits(20.0, 0.05, 60.0, 3, 0.001)

    assert await collect_response(request_for("stalls:1"), limits) == (
        "word1 ",
        Finish("late"),
    )


async def test_refused_response_is_empty() -> None:
    """A refusal of the model is a valid end."""
    text, end = await collect_response(request_for("refuse"))

    assert (text, end.end) == ("", "refused")


@pytest.mark.parametrize("model", ["nonsense", "story", "echo:3", "story:x"])
async def test_unknown_script_is_a_config_error(model: str) -> None:
    with pytest.raises(ConfigError):
        await collect_response(request_for(model))


async def test_attempts_end_at_the_total_deadline() -> None:
    limits, attempts = CallLimits(0.05, 20.0, 0.2, 10, 0.05), 0

    class SilentModel:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Finish]:
            nonlocal attempts
            attempts += 1
            await asyncio.Event().wait()
            yield Delta("never")

    with pytest.raises(Unavailable):
        async for _ in stream_response(
            SilentModel(), request_for("any"), limits, BodyBounds(), SystemClock()
        ):
            pass

    assert 1 <= attempts < 10  # each lasts up to 0.05 s, and the pauses grow


async def test_response_closed_early_closes_the_provider() -> None:
    """A user who stops a response does not pay for the rest."""
    closed = asyncio.Event()

    class EndlessModel:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Finish]:
            try:
                while True:
                    yield Delta("word ")
            finally:
                closed.set()

    response = stream_response(
        EndlessModel(), request_for("any"), LIMITS, BodyBounds(), SystemClock()
    )
    async with contextlib.aclosing(response) as pieces:
        async for _ in pieces:
            break

    assert closed.is_set()


@given(
    texts=st.lists(st.text(min_size=1)),
    chars=st.integers(1, 40),
    size=st.integers(4, 80),
    tokens=st.integers(1, 10),
)
def test_remaining_length_accepts_a_prefix_within_its_limits(
    texts: list[str], chars: int, size: int, tokens: int
) -> None:
    """No text is omitted in the middle, and no character is split."""
    remaining, accepted = RemainingLength(BodyBounds(chars, size), tokens), ""
    for text in texts:
        accepted += remaining.truncate(text)
        if remaining.is_full:
            break

    text = "".join(texts).encode("utf-8", "replace").decode()
    assert text.startswith(accepted.encode("utf-8", "replace").decode())
    assert len(accepted) <= chars and len(accepted.encode("utf-8", "replace")) <= min(
        size, 16 * tokens
    )
    assert remaining.is_full or len(accepted) == len("".join(texts))


@given(text=st.text(), tokens=st.integers(0, 100))
def test_text_cut_to_tokens_fits(text: str, tokens: int) -> None:
    cut = cut_to_tokens(text, tokens)

    assert not cut or estimate_tokens(cut) <= tokens
