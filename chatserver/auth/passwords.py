"""Passwords: argon2id, in threads, a few at a time.

Each hash takes `auth.argon2_memory_kib` of memory and some 100 ms of a core, so only
`argon2_at_once_max` run at once in a process; more wait, and beyond `WAITING_MAX` none is taken.

An unknown user costs what a known one costs: then the password is checked against a hash that was
made at the start, with today's parameters, of something nobody knows.
"""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from chatserver.config import Auth
from chatserver.errors import BadRequest, CorruptData, Overloaded, TooLarge

T = TypeVar("T")

WAITING_MAX = 100
PASSWORD_BYTES_MAX = 512
SALT_BYTES = 16
HASH_BYTES = 32


class Passwords:
    """Hashes and checks passwords with the parameters of the settings."""

    def __init__(self, settings: Auth) -> None:
        self._hasher = PasswordHasher(
            time_cost=settings.argon2_passes,
            memory_cost=settings.argon2_memory_kib,
            parallelism=settings.argon2_lanes,
            hash_len=HASH_BYTES,
            salt_len=SALT_BYTES,
            type=Type.ID,
        )
        self._chars_min = settings.passphrase_chars_min
        self._slots = asyncio.Semaphore(settings.argon2_at_once_max)
        self._waiting = 0
        self._decoy: str | None = None

    def parse(self, password: str, user: str) -> str:
        """Return a password that may be chosen, normalised as `verify` does it.

        No rules of composition, after NIST SP 800-63B: length alone, and not the user's name.

        Raises:
            BadRequest: it is too short, has a control character, or says who the user is.
            TooLarge: it is longer than 512 bytes.
        """
        text = normalise(password)
        if len(text) < self._chars_min:
            raise BadRequest(f"password: must be at least {self._chars_min} characters")
        if any(unicodedata.category(char) == "Cc" for char in text):
            raise BadRequest("password: must not contain control characters")
        if text.casefold().strip("0123456789!?. ") == user.casefold() or len(set(text)) == 1:
            raise BadRequest("password: is too easy to guess")
        return text

    async def hash(self, password: str) -> str:
        """Return the hash of a password that `parse` let pass.

        Cancellation: safe; it waits for the thread, whose result is dropped.

        Raises:
            Overloaded: too many are being hashed.
        """
        return await self._in_thread(self._hasher.hash, normalise(password))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Tell whether a password is the stored one; None costs the same and is never right.

        Raises:
            Overloaded: too many are being hashed.
            CorruptData: what is stored is no hash.
            TooLarge: it is longer than 512 bytes.
        """
        text = normalise(password)
        if self._decoy is None:
            self._decoy = await self._in_thread(self._hasher.hash, secrets.token_urlsafe(32))
        is_right = await self._in_thread(self._check, stored or self._decoy, text)
        return is_right and stored is not None

    def _check(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except VerifyMismatchError:
            return False
        except (InvalidHashError, VerificationError) as exc:
            raise CorruptData("a stored password hash cannot be read") from exc

    def is_outdated(self, stored: str) -> bool:
        """Tell whether a hash was made with other parameters than today's."""
        return self._hasher.check_needs_rehash(stored)

    async def _in_thread(self, work: Callable[..., T], *args: str) -> T:
        if self._waiting >= WAITING_MAX:
            raise Overloaded("too many people log in at once", retry_after_ms=2000)
        self._waiting += 1
        try:
            async with self._slots:
                # The slot is kept until the thread is done, or memory would have no bound.
                task = asyncio.ensure_future(asyncio.to_thread(work, *args))
                try:
                    return await asyncio.shield(task)
                except asyncio.CancelledError:
                    await asyncio.wait([task])
                    raise
        finally:
            self._waiting -= 1


def normalise(password: str) -> str:
    """Return a password as it is hashed: NFKC, as RFC 8265 has it, and of bounded size.

    Raises:
        BadRequest: it is no text.
        TooLarge: it is longer than 512 bytes.
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
