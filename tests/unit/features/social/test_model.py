"""Ids of posts, and the content of posts."""

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


class FakeClock:
    """A clock with scripted times."""

    def __init__(self, *times: float) -> None:
        self._times = iter(times)

    def time(self) -> float:
        return next(self._times)

    def monotonic(self) -> float:
        return 0.0


@given(st.lists(st.floats(1.0, 4e9), min_size=2, max_size=50))
def test_post_ids_increase_for_any_clock(times: list[float]) -> None:
    """Ids of one millisecond increase, and so they do when the clock goes back."""
    ids = PostIds(FakeClock(*times, times[-1]))
    post_ids = [ids.next() for _ in range(len(times) + 1)]

    assert post_ids == sorted(set(post_ids))
    assert all(parse_post_id(each) == each for each in post_ids)
    assert get_created_ms(post_ids[0]) == int(times[0] * 1000)
    assert first_post_id(times[0]) <= post_ids[0] < first_post_id(times[0] + 0.0021)


@pytest.mark.parametrize("text", ["", "x", "8" + "0" * 25, "0" * 27, "0" * 25 + "#", "i" * 26])
def test_invalid_post_id_is_refused(text: str) -> None:
    """Post ids become part of keys."""
    with pytest.raises(BadRequest, match="post: must be the id of a post"):
        parse_post_id(text)


def test_content_is_normalized_bounded_and_not_blank() -> None:
    """Control characters are refused."""
    assert parse_content("e\u0301\n") == "\u00e9\n"
    for text in ("", " \n", "a\x00b"):
        with pytest.raises(BadRequest, match="content"):
            parse_content(text)
    with pytest.raises(TooLarge, match="content: must be at most 2000 characters"):
        parse_content("x" * (POST_CHARS_MAX + 1))


def test_user_cannot_follow_themselves() -> None:
    check_other(UserId("a"), UserId("b"))
    with pytest.raises(BadRequest):
        check_other(UserId("a"), UserId("a"))
