"""The code table: every error has a row, every row agrees with the errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chatserver import errors
from chatserver.protocol.codes import CODES, Close


def error_classes(
    root: type[errors.ChatError] = errors.ChatError,
) -> Iterator[type[errors.ChatError]]:
    """Yield every class of the error tree that this project's package defines."""
    yield root
    for cls in root.__subclasses__():
        if cls.__module__ == errors.__name__:
            yield from error_classes(cls)


@pytest.mark.parametrize("cls", sorted(set(error_classes()), key=str))
def test_codes_every_error_has_a_meaning_that_agrees(cls: type[errors.ChatError]) -> None:
    """Every error has a code of the table, and both agree whether to retry."""
    is_temporary = CODES[cls.code].is_temporary
    # The one error that differs from its code: the same call may work later.
    assert is_temporary == (cls.temporary and cls is not errors.LostRace)


def test_codes_temporary_ones_are_server_side_statuses() -> None:
    """A temporary code is 429 or 503 over HTTP, and no other is."""
    for code, meaning in CODES.items():
        assert meaning.is_temporary == (meaning.http_status in {429, 503}), code


def test_close_codes_are_in_the_ranges_that_clients_act_on() -> None:
    """3000-3499 mean come back, 3500-3999 do not: a temporary error never closes for good."""
    assert all(3000 <= code <= 3999 for code in Close)
    for meaning in CODES.values():
        if meaning.close is not None:
            assert (meaning.close < 3500) == meaning.is_temporary
