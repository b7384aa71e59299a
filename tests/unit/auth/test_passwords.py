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
    load_common_passwords,
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
def test_common_password_or_service_name_is_refused(password: str) -> None:
    """Common passwords are refused, in any case and with digits around them."""
    with pytest.raises(BadRequest):
        Passwords(WEAK).parse(password, "zoe")


def test_long_password_without_digits_is_accepted() -> None:
    """Only the length counts; no character classes are required."""
    assert Passwords(WEAK).parse("correct horse battery", "zoe") == "correct horse battery"


def test_list_of_common_passwords_is_complete() -> None:
    """The list has about 10,000 passwords of 8 or more characters, and no license text."""
    assert 9_500 < len(load_common_passwords()) <= 10_000
    assert min(map(len, load_common_passwords())) == 8
    assert not any("copyright" in each for each in load_common_passwords())


async def test_unknown_user_is_checked_against_a_hash_of_the_same_cost() -> None:
    """The check for an unknown user always fails and takes as long as a real one."""
    passwords = Passwords(WEAK)
    stored = await passwords.hash("correct horse battery", ATTEMPT)

    assert await passwords.verify(stored, "correct horse battery", ATTEMPT)
    assert not await passwords.verify(stored, "another long secret", ATTEMPT)
    assert not await passwords.verify(None, "correct horse battery", ATTEMPT)
    assert not passwords.is_outdated(stored)
    assert not passwords.is_outdated(passwords._dummy_hash)


@pytest.mark.constants(
    {
        "chatserver.auth.passwords.ARGON2_AT_ONCE_MAX": 1,
        "chatserver.auth.password_queue.LOGIN_DELAY_S": 0,
    }
)
async def test_guesses_use_no_slot_of_other_logins() -> None:
    """A second guess waits for the first one; attempts at other accounts do not."""
    passwords = Passwords(WEAK)
    stored = await passwords.hash("correct horse battery", ATTEMPT)
    guess = dataclasses.replace(ATTEMPT, is_guess=True)
    release, check = threading.Event(), passwords._check
    nice: list[int] = []

    def check_slowly(stored: str, password: str) -> bool:
        if password != "correct horse battery":
            release.wait(10)
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
        release.set()
    assert await asyncio.gather(*guesses) == [False, False]
    if sys.platform == "linux":
        base = os.getpriority(os.PRIO_PROCESS, 0)
        assert nice == [max(base, UNKNOWN_DEVICE_NICE), *[max(base, GUESS_NICE)] * 2]
        nice.clear()
        known = dataclasses.replace(ATTEMPT, is_known=True)
        assert await passwords.verify(stored, "correct horse battery", known)
        assert nice == [max(base, 0)]


@pytest.mark.constants({"chatserver.auth.password_queue.LOGIN_DELAY_S": 0})
async def test_attempt_without_a_slot_reads_no_credential() -> None:
    """Credentials are read only when a slot is free, so a flood of guesses causes no reads."""

    @dataclasses.dataclass
    class Stored:
        hash: str

    passwords = Passwords(WEAK)
    stored = Stored(await passwords.hash("correct horse battery", ATTEMPT))
    guess = dataclasses.replace(ATTEMPT, is_guess=True)
    release, reads = asyncio.Event(), 0

    async def find() -> Stored | None:
        nonlocal reads
        reads += 1
        await release.wait()
        return stored

    attempts = [
        asyncio.create_task(passwords.find_verified(find, "correct horse battery", guess))
        for _ in range(2 * SOURCE_MAX)
    ]
    await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
    assert reads == 1
    release.set()
    results = await asyncio.gather(*attempts, return_exceptions=True)

    refused = [result for result in results if isinstance(result, RateLimited)]
    assert len(refused) == SOURCE_MAX - 1
    assert [result for result in results if result not in refused] == [stored] * reads
    assert await passwords.find_verified(find, "another long secret", ATTEMPT) is None
