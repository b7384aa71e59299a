"""Logins: which refresh token gets which answer, and when a login ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import pytest

from chatserver.auth.refresh_tokens import RefreshTokens, parse_refresh_token
from chatserver.auth.tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.access.logins import Login
from chatserver.domain.ids import UserId
from chatserver.errors import Banned, Conflict, Unauthenticated
from chatserver.features.accounts.service.logins import KEY_S, Grant, Logins

ZOE = UserId("zoe")
AUTH = Auth.model_validate({"secret": "0123456789abcdef0123456789abcdef"})


@dataclasses.dataclass
class Person:
    """A user, as far as logins care."""

    banned_ms: int | None = None


class World:
    """A clock, a directory of one user, and what was ended."""

    def __init__(self, auth: Auth = AUTH) -> None:
        self.now = 1_790_000_000.0
        self.person: Person | None = Person()
        self.rows: dict[str, Login] = {}
        self.ended: list[str] = []
        self.lost_races = 0
        self.lost_creations = 0
        self.logins = Logins(
            rows=self,
            tokens=Tokens(auth, self),
            refresh_tokens=RefreshTokens(auth),
            parse=parse_refresh_token,
            revocation=self,
            settings=auth,
            clock=self,
        )

    # the clock

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    # the directory

    async def find_user(self, user: str) -> Any:
        return self.person

    async def find_login(self, user: str, login: str) -> Login | None:
        return self.rows.get(login)

    async def list_logins(self, user: str) -> list[Login]:
        return list(self.rows.values())

    async def create_login(self, login: Login) -> bool:
        if self.lost_creations:
            self.lost_creations -= 1
            self.rows[login.login] = dataclasses.replace(login, seed="b3RoZXI=")
        return self.rows.setdefault(login.login, login).seed == login.seed

    async def rotate(self, login: Login, now_ms: int, expires_at: int) -> bool:
        stored = self.rows[login.login]
        if self.lost_races:
            self.lost_races -= 1
            self._step(stored, now_ms, expires_at)  # somebody else was faster
        stored = self.rows[login.login]
        if stored.generation != login.generation:
            return False
        self._step(stored, now_ms, expires_at)
        return True

    def _step(self, stored: Login, now_ms: int, expires_at: int) -> None:
        self.rows[stored.login] = dataclasses.replace(
            stored,
            generation=stored.generation + 1,
            rotated_ms=now_ms,
            seen_ms=now_ms,
            expires_at=expires_at,
        )

    # the endings

    async def end_logins(self, user: UserId, logins: Collection[str], reason: str) -> None:
        for login in logins:
            self.ended.append(login)
            self.rows[login] = dataclasses.replace(
                self.rows[login], ended_ms=int(self.now * 1000), seed=""
            )

    async def end_all(self, user: UserId, reason: str, *, but: str | None = None) -> None:
        await self.end_logins(user, [login for login in self.rows if login != but], reason)


async def begin(world: World) -> Grant:
    return await world.logins.begin(ZOE, "Laptop")


async def test_refresh_within_the_grace_gets_the_same_answer() -> None:
    """A client that lost the response repeats the request and gets the same token."""
    world = World()
    granted = await begin(world)
    first = await world.logins.refresh(granted.refresh_token)
    world.now += 29

    again = await world.logins.refresh(granted.refresh_token)

    assert again.refresh_token == first.refresh_token
    assert world.ended == []


async def test_refresh_after_the_grace_ends_the_login() -> None:
    """A spent token that is used late was copied: the login ends for all holders."""
    world = World()
    granted = await begin(world)
    first = await world.logins.refresh(granted.refresh_token)
    world.now += 31

    with pytest.raises(Unauthenticated):
        await world.logins.refresh(granted.refresh_token)

    assert world.ended == [granted.login]
    with pytest.raises(Unauthenticated):
        await world.logins.refresh(first.refresh_token)


async def test_refresh_that_loses_a_race_gets_what_the_winner_got() -> None:
    """Two windows of a browser ask at once: neither ends the other's login."""
    world = World()
    granted = await begin(world)
    world.lost_races = 1

    late = await world.logins.refresh(granted.refresh_token)

    assert parse_refresh_token(late.refresh_token).generation == 2
    assert world.ended == []


async def test_refresh_of_a_directory_that_went_back_ends_the_login() -> None:
    """A token from the future is genuine, and means that the directory lost something."""
    world = World()
    granted = await begin(world)
    newer = await world.logins.refresh(granted.refresh_token)
    newest = await world.logins.refresh(newer.refresh_token)
    world.rows[granted.login] = dataclasses.replace(world.rows[granted.login], generation=1)

    with pytest.raises(Unauthenticated):
        await world.logins.refresh(newest.refresh_token)

    assert world.ended == [granted.login]


async def test_refresh_of_an_unused_login_is_refused_in_the_end() -> None:
    """A login lives as long as it is used, and a while."""
    world = World()
    granted = await begin(world)
    world.now += AUTH.refresh_ttl_s - 1
    kept = await world.logins.refresh(granted.refresh_token)
    world.now += AUTH.refresh_ttl_s + 1

    with pytest.raises(Unauthenticated):
        await world.logins.refresh(kept.refresh_token)


async def test_row_22_refresh_of_a_banned_or_missing_user_is_refused() -> None:
    """A disabled account is shut on this way, too, and its login is not spent by trying."""
    world = World()
    granted = await begin(world)
    world.person = Person(banned_ms=1)
    with pytest.raises(Banned):
        await world.logins.refresh(granted.refresh_token)
    world.person = None
    with pytest.raises(Unauthenticated):
        await world.logins.refresh(granted.refresh_token)

    world.person = Person()
    assert (await world.logins.refresh(granted.refresh_token)).login == granted.login


async def test_refresh_with_a_token_of_another_secret_ends_nothing() -> None:
    """After a rotation of the secret every user logs in again; no login is marked as stolen."""
    world = World()
    granted = await begin(world)
    other = Auth.model_validate({"secret": "fedcba9876543210fedcba9876543210"})
    seed = b"0" * 32
    forged = RefreshTokens(other).make(ZOE, granted.login, 1, seed)

    with pytest.raises(Unauthenticated):
        await world.logins.refresh(forged)

    assert world.ended == []


async def test_stored_login_lets_nobody_in() -> None:
    """The stored login contains no part of a token."""
    world = World()
    granted = await begin(world)

    stored = repr(world.rows[granted.login])

    mac = granted.refresh_token.rpartition(".")[2]
    assert mac not in stored
    assert granted.token not in stored


async def test_login_under_a_key_is_begun_once() -> None:
    """A repeat, and the slower of two at once, get the refresh token of the one login there is."""
    world = World()
    world.lost_creations = 1

    slower = await world.logins.begin(ZOE, "Laptop", "k1")
    again = await world.logins.begin(ZOE, "Laptop", "k1")
    other = await world.logins.begin(ZOE, "Laptop", "k2")

    assert again.refresh_token == slower.refresh_token
    assert (await world.logins.refresh(again.refresh_token)).login == slower.login
    assert other.login != slower.login
    assert len(world.rows) == 2


@pytest.mark.parametrize("what", ["another name", "refreshed", "ended", "a day later"])
async def test_key_of_a_login_that_is_another_by_now_is_a_conflict(what: str) -> None:
    """A response is not repeated to a login that has changed since."""
    world = World()
    granted = await world.logins.begin(ZOE, "Laptop", "k1")
    match what:
        case "refreshed":
            await world.logins.refresh(granted.refresh_token)
        case "ended":
            await world.logins.log_out(ZOE, granted.login)
        case "a day later":
            world.now += KEY_S + 1

    with pytest.raises(Conflict, match="Idempotency-Key"):
        await world.logins.begin(ZOE, "Phone" if what == "another name" else "Laptop", "k1")
