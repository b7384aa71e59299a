"""A model's answer within its bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.clock import SystemClock
from chatserver.domain.text import BodyBounds
from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.bounded_response import (
    Pace,
    RemainingLength,
    ResponseEnd,
    stream_response,
)
from chatserver.features.companions.providers.interface import Ask, Delta, Finish, ModelMessage
from chatserver.features.companions.providers.scripted import Scripted
from chatserver.features.companions.providers.token_estimates import cut_to_tokens, estimate_tokens

PACE = Pace(20.0, 20.0, 60.0, 3, 0.001)


def ask_of(model: str, text: str = "hello", tokens: int = 100) -> Ask:
    """A question to the scripted model."""
    return Ask(model, "", (ModelMessage("user", text),), tokens)


async def collect_response(
    ask: Ask, pace: Pace = PACE, bounds: BodyBounds | None = None
) -> tuple[str, ResponseEnd]:
    """Return the whole text of the response, and how it ended."""
    pieces = [
        piece
        async for piece in stream_response(
            Scripted(0), ask, pace, bounds or BodyBounds(), SystemClock()
        )
    ]
    *deltas, last = pieces
    assert isinstance(last, ResponseEnd)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), last


async def test_speaking_answer_comes_whole() -> None:
    """The model's own end."""
    text, spoken = await collect_response(ask_of("echo", "how are you?"))

    assert (text, spoken.end) == ("You said: how are you?", "done")
    assert spoken.tokens_out == 5


async def test_speaking_same_question_same_answer() -> None:
    """A script is no chance."""
    assert await collect_response(ask_of("story:7")) == await collect_response(ask_of("story:7"))


async def test_speaking_throttled_twice_is_asked_a_third_time() -> None:
    """Bounded tries, before the first delta."""
    assert (await collect_response(ask_of("throttle:2")))[0] == "You said: hello"
    with pytest.raises(Overloaded):
        await collect_response(ask_of("throttle:3"))


async def test_speaking_endless_stream_ends_at_the_bound() -> None:
    """In characters, or in tokens, and marked."""
    text, spoken = await collect_response(
        ask_of("endless", tokens=10_000), bounds=BodyBounds(25, 1000)
    )
    assert (len(text), spoken) == (25, ResponseEnd("length"))

    text, spoken = await collect_response(ask_of("endless", tokens=2))
    assert (len(text), spoken) == (32, ResponseEnd("length"))


async def test_speaking_model_that_dies_midway_leaves_what_it_said() -> None:
    """Marked, and not asked again."""
    assert await collect_response(ask_of("dies:2")) == ("word1 word2 ", ResponseEnd("broken"))


async def test_speaking_model_that_stalls_leaves_what_it_said() -> None:
    """After its deadline."""
    pace = Pace(20.0, 0.05, 60.0, 3, 0.001)

    assert await collect_response(ask_of("stalls:1"), pace) == ("word1 ", ResponseEnd("late"))


async def test_speaking_refusal_is_an_end() -> None:
    """A refusal is an empty response."""
    text, spoken = await collect_response(ask_of("refuse"))

    assert (text, spoken.end) == ("", "refused")


@pytest.mark.parametrize("model", ["nonsense", "story", "echo:3", "story:x"])
async def test_speaking_unknown_script_is_said_at_once(model: str) -> None:
    """A persona that names no rule."""
    with pytest.raises(ConfigError):
        await collect_response(ask_of(model))


async def test_speaking_time_in_all_bounds_the_tries() -> None:
    """However many of them there are."""
    pace, tries = Pace(0.05, 20.0, 0.2, 10, 0.05), 0

    class Silent:
        async def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
            nonlocal tries
            tries += 1
            await asyncio.Event().wait()
            yield Delta("never")

    with pytest.raises(Unavailable):
        async for _ in stream_response(Silent(), ask_of("any"), pace, BodyBounds(), SystemClock()):
            pass

    assert 1 <= tries < 10  # each may last a quarter of it, and the pauses grow


async def test_speaking_closed_early_closes_the_provider() -> None:
    """A user who presses stop does not pay for the rest."""
    closed = asyncio.Event()

    class Talking:
        async def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
            try:
                while True:
                    yield Delta("word ")
            finally:
                closed.set()

    answer = stream_response(Talking(), ask_of("any"), PACE, BodyBounds(), SystemClock())
    async with contextlib.aclosing(answer) as pieces:
        async for _ in pieces:
            break

    assert closed.is_set()


@given(
    texts=st.lists(st.text(min_size=1)),
    chars=st.integers(1, 40),
    size=st.integers(4, 80),
    tokens=st.integers(1, 10),
)
def test_room_takes_a_prefix_within_its_bounds(
    texts: list[str], chars: int, size: int, tokens: int
) -> None:
    """Nothing is left out in the middle, and no character is cut in two."""
    room, taken = RemainingLength(BodyBounds(chars, size), tokens), ""
    for text in texts:
        taken += room.take(text)
        if room.is_full:
            break

    whole = "".join(texts).encode("utf-8", "replace").decode()
    assert whole.startswith(taken.encode("utf-8", "replace").decode())
    assert len(taken) <= chars and len(taken.encode("utf-8", "replace")) <= min(size, 16 * tokens)
    assert room.is_full or len(taken) == len("".join(texts))


@given(text=st.text(), tokens=st.integers(0, 100))
def test_cut_to_tokens_fits(text: str, tokens: int) -> None:
    """The truncated text fits the limit."""
    cut = cut_to_tokens(text, tokens)

    assert not cut or estimate_tokens(cut) <= tokens
