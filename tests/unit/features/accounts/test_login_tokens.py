"""Logins: the responses to refresh tokens, and when a login ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import pytest

from chatserver.auth.access_tokens import Tokens
from chatserver.auth.refresh_token_format import RefreshTokens, parse_refresh_token
from chatserver.config import Auth
from chatserver.domain.access.logins import NEW_ACCOUNT_S, Login
from chatserver.domain.ids import UserId
from chatserver.errors import Banned, Conflict, Unauthenticated
from chatserver.features.accounts.service.login_tokens import (
    KEY_S,
    Grant,
    LoginTokens,
)

ZOE = UserId("zoe")
AUTH = Auth.model_validate({"secret": "0123456789abcdef0123456789abcdef"})


@dataclasses.dataclass
class StubUser:
    banned_ms: int | None = None
    created_ms: int = 0


class LoginScenario:
    """Logins with a fake clock, a directory of one user, and a record of ended logins."""

    def __init__(self, auth: Auth = AUTH) -> None:
        self.now = 1_790_000_000.0
        self.user: StubUser | None = StubUser()
        self.rows: dict[str, Login] = {}
        self.ended: list[str] = []
        self.lost_races = 0
        self.lost_creation_races = 0
        self.logins = LoginTokens(
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
        return self.user

    async def find_login(self, user: str, login: str) -> Login | None:
        return self.rows.get(login)

    async def list_logins(self, user: str) -> list[Login]:
        return list(self.rows.values())

    async def create_login(self, login: Login) -> bool:
        if self.lost_creation_races:
            self.lost_creation_races -= 1
            self.rows[login.login] = dataclasses.replace(login, seed="b3RoZXI=")
        return self.rows.setdefault(login.login, login).seed == login.seed

    async def rotate(self, login: Login, now_ms: int, expires_at: int) -> bool:
        stored = self.rows[login.login]
        if self.lost_races:
            self.lost_races -= 1
            self._advance(stored, now_ms, expires_at)  # by a concurrent request
        stored = self.rows[login.login]
        if stored.generation != login.generation:
            return False
        self._advance(stored, now_ms, expires_at)
        return True

    def _advance(self, stored: Login, now_ms: int, expires_at: int) -> None:
        self.rows[stored.login] = dataclasses.replace(
            stored,
            generation=stored.generation + 1,
            rotated_ms=now_ms,
            seen_ms=now_ms,
            expires_at=expires_at,
        )

    # the revocation

    async def end_logins(self, user: UserId, logins: Collection[str], reason: str) -> None:
        for login in logins:
            self.ended.append(login)
            self.rows[login] = dataclasses.replace(
                self.rows[login], ended_ms=int(self.now * 1000), seed=""
            )

    async def end_all(self, user: UserId, reason: str, *, but: str | None = None) -> None:
        await self.end_logins(user, [login for login in self.rows if login != but], reason)


async def begin(scenario: LoginScenario) -> Grant:
    return await scenario.logins.begin(ZOE, "Laptop", created_ms=0)


async def test_refresh_repeated_within_the_grace_period_gets_the_same_token() -> None:
    """A client that lost the response repeats the request."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    first = await scenario.logins.refresh(granted.refresh_token)
    scenario.now += 29

    again = await scenario.logins.refresh(granted.refresh_token)

    assert again.refresh_token == first.refresh_token
    assert scenario.ended == []


async def test_refresh_with_a_spent_token_after_the_grace_period_ends_the_login() -> None:
    """A spent token that is used late was copied: the login ends for all holders."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    first = await scenario.logins.refresh(granted.refresh_token)
    scenario.now += 31

    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(granted.refresh_token)

    assert scenario.ended == [granted.login]
    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(first.refresh_token)


async def test_refresh_that_loses_a_race_gets_the_token_of_the_winner() -> None:
    """Two browser windows that refresh at once do not end each other's login."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    scenario.lost_races = 1

    late = await scenario.logins.refresh(granted.refresh_token)

    assert parse_refresh_token(late.refresh_token).generation == 2
    assert scenario.ended == []


async def test_refresh_with_a_token_newer_than_the_directory_ends_the_login() -> None:
    """Such a token is genuine and proves that the directory lost data."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    newer = await scenario.logins.refresh(granted.refresh_token)
    newest = await scenario.logins.refresh(newer.refresh_token)
    scenario.rows[granted.login] = dataclasses.replace(scenario.rows[granted.login], generation=1)

    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(newest.refresh_token)

    assert scenario.ended == [granted.login]


async def test_refresh_of_an_unused_login_is_refused_after_its_ttl() -> None:
    """Each refresh extends the lifetime of a login."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    scenario.now += AUTH.refresh_ttl_s - 1
    kept = await scenario.logins.refresh(granted.refresh_token)
    scenario.now += AUTH.refresh_ttl_s + 1

    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(kept.refresh_token)


async def test_row_22_refresh_of_a_banned_or_missing_user_is_refused() -> None:
    """The attempt does not use up the login: it works again after the ban."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    scenario.user = StubUser(banned_ms=1)
    with pytest.raises(Banned):
        await scenario.logins.refresh(granted.refresh_token)
    scenario.user = None
    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(granted.refresh_token)

    scenario.user = StubUser()
    assert (await scenario.logins.refresh(granted.refresh_token)).login == granted.login


async def test_refresh_with_a_token_of_another_secret_ends_no_login() -> None:
    """After a rotation of the secret every user logs in again; no login is marked as stolen."""
    scenario = LoginScenario()
    granted = await begin(scenario)
    other = Auth.model_validate({"secret": "fedcba9876543210fedcba9876543210"})
    seed = b"0" * 32
    forged = RefreshTokens(other).make(ZOE, granted.login, 1, seed)

    with pytest.raises(Unauthenticated):
        await scenario.logins.refresh(forged)

    assert scenario.ended == []


async def test_stored_login_contains_no_token() -> None:
    """A copy of the directory is of no use to an attacker."""
    scenario = LoginScenario()
    granted = await begin(scenario)

    stored = repr(scenario.rows[granted.login])

    mac = granted.refresh_token.rpartition(".")[2]
    assert mac not in stored
    assert granted.token not in stored


async def test_login_with_an_idempotency_key_is_created_once() -> None:
    """A retry, and the slower of two concurrent requests, get the token of the one login."""
    scenario = LoginScenario()
    scenario.lost_creation_races = 1

    slower = await scenario.logins.begin(ZOE, "Laptop", "k1", created_ms=0)
    again = await scenario.logins.begin(ZOE, "Laptop", "k1", created_ms=0)
    other = await scenario.logins.begin(ZOE, "Laptop", "k2", created_ms=0)

    assert again.refresh_token == slower.refresh_token
    assert (await scenario.logins.refresh(again.refresh_token)).login == slower.login
    assert other.login != slower.login
    assert len(scenario.rows) == 2


@pytest.mark.parametrize("change", ["another name", "refreshed", "ended", "a day later"])
async def test_idempotency_key_of_a_changed_login_is_a_conflict(change: str) -> None:
    """The response for a login that has changed is not repeated."""
    scenario = LoginScenario()
    granted = await scenario.logins.begin(ZOE, "Laptop", "k1", created_ms=0)
    match change:
        case "refreshed":
            await scenario.logins.refresh(granted.refresh_token)
        case "ended":
            await scenario.logins.log_out(ZOE, granted.login)
        case "a day later":
            scenario.now += KEY_S + 1

    with pytest.raises(Conflict, match="Idempotency-Key"):
        await scenario.logins.begin(
            ZOE, "Phone" if change == "another name" else "Laptop", "k1", created_ms=0
        )


async def test_tokens_of_an_account_say_that_it_is_new_for_seven_days() -> None:
    """New accounts have stricter limits, which need no lookup while a message is sent."""
    scenario = LoginScenario()
    created_ms = int(scenario.now * 1000)
    scenario.user = StubUser(created_ms=created_ms)
    verify = Tokens(AUTH, scenario).verify

    granted = await scenario.logins.begin(ZOE, "Laptop", created_ms=created_ms)
    assert verify(granted.token).is_new_account
    scenario.now += NEW_ACCOUNT_S - 1
    granted = await scenario.logins.refresh(granted.refresh_token)
    assert verify(granted.token).is_new_account
    scenario.now += 1
    granted = await scenario.logins.refresh(granted.refresh_token)
    assert not verify(granted.token).is_new_account
