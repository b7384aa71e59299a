"""The table of error codes agrees with the error classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chatserver import errors
from chatserver.protocol.error_codes import CODES, Close


def error_classes(
    root: type[errors.ChatError] = errors.ChatError,
) -> Iterator[type[errors.ChatError]]:
    """Yield every class of the error tree that this project's package defines."""
    yield root
    for cls in root.__subclasses__():
        if cls.__module__ == errors.__name__:
            yield from error_classes(cls)


@pytest.mark.parametrize("cls", sorted(set(error_classes()), key=str))
def test_codes_of_every_error_class_agree_on_retry(cls: type[errors.ChatError]) -> None:
    """Every error class has a code of the table, and both agree whether to retry."""
    is_temporary = CODES[cls.code].is_temporary
    # `LostRace` is the exception: its code is permanent, but the same call may work later.
    assert is_temporary == (cls.temporary and cls is not errors.LostRace)


def test_codes_that_are_temporary_have_status_429_or_503() -> None:
    """HTTP clients retry exactly the temporary errors."""
    for code, meaning in CODES.items():
        assert meaning.is_temporary == (meaning.http_status in {429, 503}), code


def test_close_codes_are_in_the_ranges_that_clients_act_on() -> None:
    """3000-3499 mean reconnect, 3500-3999 do not: temporary errors allow a reconnect."""
    assert all(3000 <= code <= 3999 for code in Close)
    for meaning in CODES.values():
        if meaning.close is not None:
            assert (meaning.close < 3500) == meaning.is_temporary
