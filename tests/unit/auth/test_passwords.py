"""Tests of chatserver.auth.passwords."""

from __future__ import annotations

import pytest

from chatserver.auth.passwords import Passwords, common_passwords
from chatserver.config import Auth
from chatserver.domain.ids import UserId
from chatserver.domain.login_attempts import LoginAttempt
from chatserver.errors import BadRequest

WEAK = Auth(argon2_memory_kib=8, argon2_passes=1)
ATTEMPT = LoginAttempt(UserId("zoe"), "net", is_known=False)


@pytest.mark.parametrize(
    "password",
    [
        "password",
        "PassWord",
        "12345678",
        "password123!",
        "qwertyuiop",
        "chatserver1",
        "ChatServer!",
    ],
)
def test_common_password_or_name_of_the_service_may_not_be_chosen(password: str) -> None:
    """Common passwords are refused, in any case and with digits around them."""
    with pytest.raises(BadRequest):
        Passwords(WEAK).parse(password, "zoe")


def test_other_password_may_be_chosen() -> None:
    """Length is what counts; no kinds of characters are asked for."""
    assert Passwords(WEAK).parse("correct horse battery", "zoe") == "correct horse battery"


def test_list_of_common_passwords_is_whole() -> None:
    """10,000 of 8 characters or more; nothing of the license in the head of the file."""
    assert 9_500 < len(common_passwords()) <= 10_000
    assert min(map(len, common_passwords())) == 8
    assert not any("copyright" in each for each in common_passwords())


async def test_unknown_user_is_checked_against_a_hash_of_the_same_cost() -> None:
    """Nobody's password is never right, and the check reads it as it reads any hash."""
    passwords = Passwords(WEAK)
    stored = await passwords.hash("correct horse battery", ATTEMPT)

    assert await passwords.verify(stored, "correct horse battery", ATTEMPT)
    assert not await passwords.verify(stored, "another long secret", ATTEMPT)
    assert not await passwords.verify(None, "correct horse battery", ATTEMPT)
    assert not passwords.is_outdated(stored)
    assert not passwords.is_outdated(passwords._decoy)
