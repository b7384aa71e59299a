"""Tests of chatserver.auth.passwords."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import threading

import pytest

from chatserver.auth.password_queue import SOURCE_MAX
from chatserver.auth.passwords import (
    GUESS_NICE,
    UNKNOWN_DEVICE_NICE,
    Passwords,
    common_passwords,
)
from chatserver.config import Auth
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, RateLimited

WEAK = Auth(argon2_memory_kib=8)
pytestmark = pytest.mark.constants({"chatserver.auth.passwords.ARGON2_PASSES": 1})
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
    """The check for an unknown user always fails and takes as long as a real one."""
    passwords = Passwords(WEAK)
    stored = await passwords.hash("correct horse battery", ATTEMPT)

    assert await passwords.verify(stored, "correct horse battery", ATTEMPT)
    assert not await passwords.verify(stored, "another long secret", ATTEMPT)
    assert not await passwords.verify(None, "correct horse battery", ATTEMPT)
    assert not passwords.is_outdated(stored)
    assert not passwords.is_outdated(passwords._decoy)


@pytest.mark.constants(
    {
        "chatserver.auth.passwords.ARGON2_AT_ONCE_MAX": 1,
        "chatserver.auth.passwords.LOGIN_DELAY_S": 0,
    }
)
async def test_guesses_take_no_slot_of_other_logins() -> None:
    """While a guess is hashed, one other guess waits, and other accounts do not."""
    passwords = Passwords(WEAK)
    stored = await passwords.hash("correct horse battery", ATTEMPT)
    guess = dataclasses.replace(ATTEMPT, is_guess=True)
    may_end, check = threading.Event(), passwords._check
    nice: list[int] = []

    def check_slowly(stored: str, password: str) -> bool:
        if password != "correct horse battery":
            may_end.wait(10)
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return check(stored, password)

    passwords._check = check_slowly  # type: ignore[method-assign]
    guesses = [
        asyncio.create_task(passwords.verify(stored, "wrong password", guess)) for _ in range(2)
    ]
    try:
        async with asyncio.timeout(10):
            assert await passwords.verify(stored, "correct horse battery", ATTEMPT)
            assert not any(each.done() for each in guesses)
    finally:
        may_end.set()
    assert await asyncio.gather(*guesses) == [False, False]
    if sys.platform == "linux":
        base = os.getpriority(os.PRIO_PROCESS, 0)
        assert nice == [max(base, UNKNOWN_DEVICE_NICE), *[max(base, GUESS_NICE)] * 2]
        nice.clear()
        known = dataclasses.replace(ATTEMPT, is_known=True)
        assert await passwords.verify(stored, "correct horse battery", known)
        assert nice == [max(base, 0)]


@pytest.mark.constants({"chatserver.auth.passwords.LOGIN_DELAY_S": 0})
async def test_attempt_without_a_slot_reads_no_credential() -> None:
    """A flood of guesses costs no reads: credentials are read only when a slot is free."""

    @dataclasses.dataclass
    class Stored:
        hash: str

    passwords = Passwords(WEAK)
    stored = Stored(await passwords.hash("correct horse battery", ATTEMPT))
    guess = dataclasses.replace(ATTEMPT, is_guess=True)
    may_end, reads = asyncio.Event(), 0

    async def find() -> Stored | None:
        nonlocal reads
        reads += 1
        await may_end.wait()
        return stored

    attempts = [
        asyncio.create_task(passwords.find_verified(find, "correct horse battery", guess))
        for _ in range(2 * SOURCE_MAX)
    ]
    await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
    assert reads == 1
    may_end.set()
    ends = await asyncio.gather(*attempts, return_exceptions=True)

    refused = [end for end in ends if isinstance(end, RateLimited)]
    assert len(refused) == SOURCE_MAX - 1
    assert [end for end in ends if end not in refused] == [stored] * reads
    assert await passwords.find_verified(find, "another long secret", ATTEMPT) is None
