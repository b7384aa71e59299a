"""Ids of posts, and what may be posted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, TooLarge
from chatserver.features.social.model import (
    POST_CHARS_MAX,
    PostIds,
    check_other,
    first_post_id,
    get_created_ms,
    parse_content,
    parse_post_id,
)


class SetClock:
    """A clock that the test sets."""

    def __init__(self, *times: float) -> None:
        self._times = iter(times)

    def time(self) -> float:
        return next(self._times)

    def monotonic(self) -> float:
        return 0.0


@given(st.lists(st.floats(1.0, 4e9), min_size=2, max_size=50))
def test_post_ids_rise_whatever_the_clock_does(times: list[float]) -> None:
    """Within one millisecond, and when it goes back."""
    ids = PostIds(SetClock(*times, times[-1]))
    made = [ids.next() for _ in range(len(times) + 1)]

    assert made == sorted(set(made))
    assert all(parse_post_id(each) == each for each in made)
    assert get_created_ms(made[0]) == int(times[0] * 1000)
    assert first_post_id(times[0]) <= made[0] < first_post_id(times[0] + 0.0021)


@pytest.mark.parametrize("text", ["", "x", "8" + "0" * 25, "0" * 27, "0" * 25 + "#", "i" * 26])
def test_post_id_of_another_shape_is_refused(text: str) -> None:
    """Nothing of it may get into a key."""
    with pytest.raises(BadRequest, match="post: must be the id of a post"):
        parse_post_id(text)


def test_content_is_text_that_says_something() -> None:
    """Bounded, normalised, not only spaces."""
    assert parse_content("e\u0301\n") == "\u00e9\n"
    for text in ("", " \n", "a\x00b"):
        with pytest.raises(BadRequest, match="content"):
            parse_content(text)
    with pytest.raises(TooLarge, match="content: must be at most 2000 characters"):
        parse_content("x" * (POST_CHARS_MAX + 1))


def test_nobody_follows_himself() -> None:
    """There are two ends to an edge."""
    check_other(UserId("a"), UserId("b"))
    with pytest.raises(BadRequest):
        check_other(UserId("a"), UserId("a"))
