"""Password hashing with argon2id, in threads and with limited concurrency.

Each hash takes `auth.argon2_memory_kib` of memory and about 100 ms of CPU time, so only
`ARGON2_AT_ONCE_MAX` + 2 run concurrently in a process. The rest wait in a `PasswordQueue`. There
are separate threads for:

- known devices, which never wait for hashes of unknown devices;
- unknown devices, at a lower priority (on Linux);
- guesses: attempts for an account that unknown devices have tried several times. They have their
  own queue, one thread and the lowest priority, so they delay no other login.

A login takes as long for an unknown user as for an existing one: the password is checked against a
hash of random bytes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import importlib.resources
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from chatserver.auth.password_queue import LOGIN_DELAY_S, LOGIN_WAIT_S_MAX, PasswordQueue
from chatserver.config import Auth
from chatserver.cpu_priority import lower_thread_priority
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.errors import BadRequest, CorruptData, TooLarge
from chatserver.task_groups import wait_for_shared

ARGON2_PASSES = 3
ARGON2_LANES = 1
ARGON2_AT_ONCE_MAX = 2  # maximum concurrent hashes; 1 more for known devices, 1 more for guesses

T = TypeVar("T")


class StoredPassword(Protocol):
    """A credential in the `directory` table."""

    @property
    def hash(self) -> str: ...


C = TypeVar("C", bound=StoredPassword)

PASSWORD_BYTES_MAX = 512
SALT_BYTES = 16
HASH_BYTES = 32
UNKNOWN_DEVICE_NICE = 10
GUESS_NICE = 19
KNOWN_DEVICE_SLOTS = 1


class _HashPool:
    """A queue, and one thread pool each for known and unknown devices."""

    def __init__(self, slots: int, wait_s_max: float, nice: int, reserved: int = 0) -> None:
        self.queue = PasswordQueue(slots, wait_s_max, time.monotonic, reserved)
        self._threads = _open_threads(slots, nice)
        self._threads_of_known = _open_threads(slots + reserved, 0)

    def get_threads(self, attempt: LoginAttempt) -> ThreadPoolExecutor:
        return self._threads_of_known if attempt.is_known else self._threads


def _open_threads(count: int, nice: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "argon2", initializer=lower_thread_priority, initargs=(nice,))


class Passwords:
    """Hashes and checks passwords with the parameters in the settings."""

    def __init__(self, settings: Auth) -> None:
        self._hasher = PasswordHasher(
            time_cost=ARGON2_PASSES,
            memory_cost=settings.argon2_memory_kib,
            parallelism=ARGON2_LANES,
            hash_len=HASH_BYTES,
            salt_len=SALT_BYTES,
            type=Type.ID,
        )
        self._chars_min = settings.passphrase_chars_min
        self._names = {"chatserver", settings.audience.casefold()}
        self._pool = _HashPool(
            ARGON2_AT_ONCE_MAX, LOGIN_WAIT_S_MAX, UNKNOWN_DEVICE_NICE, KNOWN_DEVICE_SLOTS
        )
        self._guess_pool = _HashPool(1, LOGIN_WAIT_S_MAX, GUESS_NICE)
        self._delay_s = LOGIN_DELAY_S
        self._dummy_hash = _make_dummy_hash(settings)

    def parse(self, password: str, user: str) -> str:
        """Return a new password, normalized, if it is acceptable.

        As NIST SP 800-63B recommends, there are no composition rules, only a minimum length. Common
        passwords, the user name and the service name are rejected, even with digits around them.

        Raises:
            BadRequest: the password is too short, has a control character, or is easy to guess.
            TooLarge: the password is longer than 512 bytes.
        """
        text = normalize(password)
        if len(text) < self._chars_min:
            raise BadRequest(f"password: must be at least {self._chars_min} characters")
        if any(unicodedata.category(char) == "Cc" for char in text):
            raise BadRequest("password: must not contain control characters")
        folded = text.casefold()
        core = folded.strip("0123456789!?. ")
        if core in (user.casefold(), *self._names) or len(set(text)) == 1:
            raise BadRequest("password: too easy to guess; choose another one")
        if not load_common_passwords().isdisjoint((folded, core)):
            raise BadRequest("password: too common; choose another one")
        return text

    async def hash(self, password: str, attempt: LoginAttempt) -> str:
        """Return the hash of a password that `parse` accepted.

        Guarantees:
            Cancellation: safe; once hashing has started, it finishes and keeps its slot until then.

        Raises:
            RateLimited, Overloaded: too many are waiting; see `PasswordQueue`.
        """
        return await self._in_thread(attempt, self._hasher.hash, normalize(password))

    async def verify(self, stored: str | None, password: str, attempt: LoginAttempt) -> bool:
        """Return whether a password matches a stored hash.

        If `stored` is None, the result is False, and the call takes as long as for a real hash.

        Guarantees:
            Cancellation: see `hash`.

        Raises:
            RateLimited, Overloaded: too many are waiting; see `PasswordQueue`.
            CorruptData: the stored hash is malformed.
            TooLarge: the password is longer than 512 bytes.
        """
        text = normalize(password)
        is_right = await self._in_thread(attempt, self._check, stored or self._dummy_hash, text)
        return is_right and stored is not None

    def _check(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except VerifyMismatchError:
            return False
        except (InvalidHashError, VerificationError) as exc:
            raise CorruptData("a stored password hash cannot be read") from exc

    def is_outdated(self, stored: str) -> bool:
        """Return whether a hash was created with parameters other than the current ones."""
        return self._hasher.check_needs_rehash(stored)

    async def find_verified(
        self, find: Callable[[], Awaitable[C | None]], password: str, attempt: LoginAttempt
    ) -> C | None:
        """Return the credential from `find` if the password matches it, otherwise None.

        Guarantees:
            Cost: `find` is called only once a slot is free. A missing credential takes as long as
            a wrong password.
            Cancellation: see `hash`.

        Raises:
            The errors of `verify` and of `find`.
        """
        text = normalize(password)
        async with self._acquire_slot(attempt) as threads:
            account = await find()
            stored = self._dummy_hash if account is None else account.hash
            return account if await _run(threads, self._check, stored, text) else None

    async def _in_thread(self, attempt: LoginAttempt, work: Callable[..., T], *args: str) -> T:
        async with self._acquire_slot(attempt) as threads:
            return await _run(threads, work, *args)

    @contextlib.asynccontextmanager
    async def _acquire_slot(self, attempt: LoginAttempt) -> AsyncIterator[ThreadPoolExecutor]:
        pool = self._guess_pool if attempt.is_guess else self._pool
        delay_s = self._delay_s if attempt.is_over_budget else 0.0
        async with pool.queue.acquire_slot(attempt, delay_s):
            yield pool.get_threads(attempt)


async def _run(threads: ThreadPoolExecutor, work: Callable[..., T], *args: str) -> T:
    """Run `work` in a thread; if cancelled, wait until it has finished, to limit memory use."""
    done = asyncio.get_running_loop().run_in_executor(threads, work, *args)
    try:
        return await wait_for_shared(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


@functools.cache
def load_common_passwords() -> frozenset[str]:
    file = importlib.resources.files(__package__).joinpath("common_passwords.txt")
    lines = file.read_text("utf-8").splitlines()
    return frozenset(line.casefold() for line in lines if not line.startswith("# ") and line != "#")


def _make_dummy_hash(settings: Auth) -> str:
    """Return a hash that no password matches; checking it takes as long as checking any other."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode()
        for size in (SALT_BYTES, HASH_BYTES)
    )
    cost = f"m={settings.argon2_memory_kib},t={ARGON2_PASSES},p={ARGON2_LANES}"
    return f"$argon2id$v=19${cost}${salt}${digest}"


def normalize(password: str) -> str:
    """Normalize a password for hashing: NFKC (RFC 8265), at most 512 bytes.

    Raises:
        BadRequest: the password is not valid text.
        TooLarge: the password is longer than 512 bytes.
    """
    if len(password) > PASSWORD_BYTES_MAX:
        raise TooLarge(f"password: must be at most {PASSWORD_BYTES_MAX} bytes")
    text = unicodedata.normalize("NFKC", password)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest("password: must be text") from None
    if size > PASSWORD_BYTES_MAX:
        raise TooLarge(f"password: must be at most {PASSWORD_BYTES_MAX} bytes")
    return text
