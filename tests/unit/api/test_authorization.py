"""Authorization rules of routes: which callers are allowed."""

from __future__ import annotations

import pytest
from litestar import get

from chatserver.api.authorization import (
    ANYONE,
    USER,
    Rule,
    apply_chat_as,
    check,
    check_rules,
    key,
    read_token,
    user_or_key,
)
from chatserver.domain.access.principals import ACT_AS, Principal
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, ConfigError, Forbidden, Unauthenticated

ALICE = Principal("user", UserId("alice"))
BARE_KEY = Principal("key", None, key="k1")
READ_KEY = Principal("key", None, frozenset({"chats:read"}), key="k2")


@pytest.mark.parametrize(
    ("rule", "principal", "is_allowed"),
    [
        (USER, ALICE, True),
        (USER, READ_KEY, False),
        (key("chats:read"), ALICE, False),
        (key("chats:read"), READ_KEY, True),
        (key("chats:read"), BARE_KEY, False),
        (user_or_key("chats:read"), ALICE, True),
        (user_or_key("chats:read"), READ_KEY, True),
        (user_or_key("chats:read"), BARE_KEY, False),
        (user_or_key("chats:write"), READ_KEY, False),
    ],
)
def test_rule_allows_only_the_callers_it_names(
    rule: Rule, principal: Principal, is_allowed: bool
) -> None:
    """A rule names users, a scope, or both; all other callers are refused."""
    if is_allowed:
        check(rule, principal)
    else:
        with pytest.raises(Forbidden):
            check(rule, principal)


def test_scope_of_a_user_is_ignored() -> None:
    """Scopes belong to API keys: a user with a scope passes no rule for keys."""
    with pytest.raises(Forbidden):
        check(key("chats:read"), Principal("user", UserId("alice"), frozenset({"chats:read"})))


def test_key_with_act_as_acts_as_the_user_of_the_header() -> None:
    """All later checks apply to that user."""
    act_as_key = Principal("key", None, frozenset({ACT_AS}), key="k3")

    assert apply_chat_as(act_as_key, "alice").user == "alice"
    assert apply_chat_as(act_as_key, None) == act_as_key


@pytest.mark.parametrize("principal", [ALICE, BARE_KEY, READ_KEY])
def test_acting_as_another_user_without_the_scope_is_forbidden(principal: Principal) -> None:
    """Users and keys without the scope get an error; the header is not silently ignored."""
    with pytest.raises(Forbidden, match="X-Chat-As"):
        apply_chat_as(principal, "bob")


@pytest.mark.parametrize("name", ["", "a#b", "{p0}", "x" * 65, "a\n"])
def test_acting_as_an_invalid_id_is_refused(name: str) -> None:
    """The header must be a valid user id."""
    with pytest.raises(BadRequest, match="X-Chat-As"):
        apply_chat_as(Principal("key", None, frozenset({ACT_AS}), key="k3"), name)


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "BEARER  abc "])
def test_token_is_read_from_the_header(header: str) -> None:
    """The scheme's case does not matter (RFC 9110 section 11.1)."""
    assert read_token([header]) == "abc"


@pytest.mark.parametrize(
    "headers", [[], [""], ["abc"], ["Basic abc"], ["Bearer"], ["Bearer "], ["Bearer a", "Bearer b"]]
)
def test_missing_or_malformed_token_is_unauthenticated(headers: list[str]) -> None:
    """A request without a token, with another scheme or with two tokens is refused."""
    with pytest.raises(Unauthenticated):
        read_token(headers)


def test_route_without_a_rule_fails_at_startup() -> None:
    """A missing authorization rule is an error before the first request."""

    @get("/v1/forgotten")
    async def forgotten() -> None:
        """Do something."""

    @get("/v1/open", opt={"rule": ANYONE})
    async def opened() -> None:
        """Do something."""

    with pytest.raises(ConfigError, match="/v1/forgotten: no authorization rule"):
        check_rules([opened, forgotten])


def test_names_of_user_and_key_differ() -> None:
    """No user can take the name of an API key, so their stored responses never mix."""
    key_principal = Principal("key", UserId("alice"), key="alice")

    assert ALICE.name != key_principal.name
