"""Tokens: what we mint holds, and each known hole of JWT is closed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from chatserver.auth.tokens import TOKEN_BYTES_MAX, Claims, Tokens
from chatserver.config import Auth
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, ConfigError, Unauthenticated

SECRET = "0123456789abcdef0123456789abcdef"
NOW = 1_790_000_000


class FixedClock:
    """A clock that a test moves."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def tokens(clock: FixedClock | None = None, **settings: Any) -> Tokens:
    return Tokens(Auth(secret=SecretStr(SECRET), **settings), clock or FixedClock())


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: object, header: object = None, key: str = SECRET) -> str:
    """Sign anything as HS256, as somebody with the secret and a careless library would."""
    head = part({"alg": "HS256", "typ": "chat+jwt"} if header is None else header)
    body = f"{head}.{part(payload)}"
    mac = hmac.new(key.encode(), body.encode(), hashlib.sha256).digest()
    return f"{body}.{part(mac)}"


def claims(**changes: object) -> dict[str, object]:
    whole: dict[str, object] = {
        "sub": "alice",
        "aud": "chatserver",
        "iat": NOW,
        "exp": NOW + 600,
        "jti": "t1",
    }
    whole |= changes
    return {name: value for name, value in whole.items() if value is not ...}


def refusal(token: str, using: Tokens | None = None) -> str:
    with pytest.raises(Unauthenticated) as caught:
        (using or tokens()).verify(token)
    return caught.value.message


def test_minted_token_verifies_to_its_user_and_expiry() -> None:
    """A minted token is valid for its user and for its lifetime."""
    found = tokens().verify(tokens().mint(UserId("alice"), 600))

    assert found == Claims(UserId("alice"), NOW + 600, found.jti)


def test_minted_tokens_have_different_names() -> None:
    """Two tokens that a user gets in the same second differ, so one can be revoked."""
    both = {tokens().verify(tokens().mint(UserId("alice"), 600)).jti for _ in range(2)}

    assert len(both) == 2


def test_hand_signed_token_of_the_documented_shape_verifies() -> None:
    """A team's own login service can sign for us: the shape is all it needs to know."""
    assert tokens().verify(signed(claims())).user == "alice"


@pytest.mark.parametrize("ttl_s", [0, -1, 3601])
def test_mint_of_a_lifetime_out_of_bounds_is_refused(ttl_s: int) -> None:
    """We do not sign what we would not accept."""
    with pytest.raises(BadRequest, match="ttl_s: must be 1 to 3600"):
        tokens().mint(UserId("alice"), ttl_s)


@pytest.mark.parametrize("user", ["", "a" * 65, "a#b", "a{b}", "a\n", "ä"])
def test_mint_for_a_user_that_is_no_id_is_refused(user: str) -> None:
    """The id grammar holds at this edge too."""
    with pytest.raises(BadRequest, match="user"):
        tokens().mint(UserId(user), 60)


def test_secret_of_31_bytes_is_refused_and_of_32_is_taken() -> None:
    """A short key is an error at the start, not a warning in a log."""
    Tokens(Auth(secret=SecretStr("x" * 32)), FixedClock())

    with pytest.raises(ConfigError, match="at least 32 bytes"):
        Tokens(Auth(secret=SecretStr("x" * 31)), FixedClock())


@pytest.mark.parametrize("name", ["exp", "iat", "sub", "aud", "jti"])
def test_token_without_a_required_claim_is_refused_by_its_name(name: str) -> None:
    """A token without an expiry, for example, is invalid."""
    assert refusal(signed(claims(**{name: ...}))) == f"token: lacks {name}"


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", ["1790000600", 1.5, True, None, [NOW], {}])
def test_time_that_is_not_a_whole_number_is_refused(name: str, value: object) -> None:
    """Text, fractions, booleans and the rest are no times."""
    assert "not a whole number of seconds" in refusal(signed(claims(**{name: value})))


@pytest.mark.parametrize("value", ["", "a" * 65, "a#b", "a{b}", "a\u0000", "a\n", "../x"])
@pytest.mark.parametrize("name", ["sub", "jti"])
def test_subject_that_is_no_id_is_refused(name: str, value: str) -> None:
    """A signed name is still checked: it becomes part of keys."""
    assert f"token: has a wrong {name}" in refusal(signed(claims(**{name: value})))


@pytest.mark.parametrize("value", [7, None, ["alice"], {"x": 1}, True])
def test_subject_that_is_not_text_is_refused(value: object) -> None:
    """Types are checked before use."""
    assert refusal(signed(claims(sub=value))) == "token: has a sub that is not a string"


@pytest.mark.parametrize("aud", ["other", ["chatserver", "other"], [], None, "chatserver "])
def test_token_for_another_audience_is_refused(aud: object) -> None:
    """A token that another service accepts, too, is not for us."""
    assert refusal(signed(claims(aud=aud))) == "token: has another audience"


def test_issuer_is_required_exactly_where_the_setting_names_one() -> None:
    """With `auth.issuer` set, only its tokens hold."""
    strict = tokens(issuer="https://login.example")

    assert strict.verify(strict.mint(UserId("alice"), 60)).user == "alice"
    assert "another issuer" in refusal(signed(claims()), strict)
    assert "another issuer" in refusal(signed(claims(iss="https://evil.example")), strict)


def test_token_expires_after_its_leeway_and_not_before() -> None:
    """The last second of grace holds, the next does not."""
    token = signed(claims(exp=NOW + 600))

    assert tokens(FixedClock(NOW + 659.9)).verify(token).user == "alice"
    assert refusal(token, tokens(FixedClock(NOW + 660))) == "token: has expired"


def test_token_from_the_future_beyond_the_leeway_is_refused() -> None:
    """Clocks may differ by a minute, no more."""
    ahead = signed(claims(iat=NOW + 60, exp=NOW + 600))
    too_far = signed(claims(iat=NOW + 61, exp=NOW + 600))

    assert tokens().verify(ahead).user == "alice"
    assert refusal(too_far) == "token: was issued in the future"
    assert refusal(signed(claims(nbf=NOW + 61))) == "token: is not valid yet"


def test_token_that_lives_longer_than_an_hour_is_refused() -> None:
    """The bound is on the token, not only on what we mint."""
    assert tokens().verify(signed(claims(exp=NOW + 3600))).expires_at == NOW + 3600
    assert "at most 3600 seconds" in refusal(signed(claims(exp=NOW + 3601)))
    assert "lifetime above 0" in refusal(signed(claims(iat=NOW, exp=NOW)))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"sub":"alice","sub":"bob","aud":"chatserver","iat":1790000000,"exp":1790000600,"jti":"t"}',
        b'{"sub":"alice","aud":"chatserver","iat":1790000000,"exp":1790000600,"jti":"t",'
        b'"x":{"a":1,"a":2}}',
        b'{"sub":"alice","aud":"chatserver","iat":1790000000,"exp":NaN,"jti":"t"}',
        b'{"sub":"alice","aud":"chatserver","iat":1790000000,"exp":Infinity,"jti":"t"}',
        b"[" * 2000,
        b"[]",
        b"null",
        b"not json",
        b"\xff\xfe",
        b"",
    ],
)
def test_claims_that_are_not_strict_json_are_refused(payload: bytes) -> None:
    """A repeated name, NaN, deep nesting and plain rubbish all end in one clean refusal."""
    assert refusal(signed(payload)).startswith("token: ")


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "chat+jwt"},
        {"alg": "HS512", "typ": "chat+jwt"},
        {"alg": "RS256", "typ": "chat+jwt"},
        {"alg": "hs256", "typ": "chat+jwt"},
        {"alg": ["HS256"], "typ": "chat+jwt"},
        {"typ": "chat+jwt"},
        {"alg": "HS256", "typ": "JWT"},
        {"alg": "HS256"},
        {"alg": "HS256", "typ": "chat+jwt", "kid": "../../dev/null"},
        {"alg": "HS256", "typ": "chat+jwt", "jku": "https://evil.example/keys"},
        {"alg": "HS256", "typ": "chat+jwt", "jwk": {"kty": "oct", "k": "AAAA"}},
        {"alg": "HS256", "typ": "chat+jwt", "crit": ["exp"]},
        {"alg": "HS256", "typ": "chat+jwt", "b64": False, "crit": ["b64"]},
        b'{"alg":"none","alg":"HS256","typ":"chat+jwt"}',
        b"[]",
        b"{",
        b"[" * 2000,
    ],
)
def test_header_of_any_other_shape_is_refused(header: object) -> None:
    """One algorithm, one type of token, and no key that the token brings along."""
    assert refusal(signed(claims(), header)).startswith("token: ")


def test_unsigned_token_is_refused() -> None:
    """`alg: none` with an empty signature is not even of the right form."""
    head, body, _ = signed(claims(), {"alg": "none", "typ": "chat+jwt"}).split(".")

    assert "three parts" in refusal(f"{head}.{body}.")


def test_token_signed_with_another_key_is_refused() -> None:
    """Only the secret makes a token."""
    assert "not signed with HS256 by this server" in refusal(
        signed(claims(), key="another key of at least 32 bytes!!")
    )


def test_token_with_any_changed_character_is_refused() -> None:
    """There is one spelling of a token: no padding, no spaces, no second encoding."""
    token = signed(claims())
    for changed in (f"{token}=", f" {token}", f"{token}\n", token.replace(".", ".."), token[:-1]):
        assert refusal(changed).startswith("token: ")


def test_token_of_more_than_4096_bytes_is_refused_before_it_is_read() -> None:
    """The bound is on the input, whatever is in it."""
    whole = signed(claims(pad="x" * 2000))
    too_long = "a" * (TOKEN_BYTES_MAX + 1)

    assert tokens().verify(whole).user == "alice"
    assert refusal(too_long) == "token: is longer than 4096 bytes"


def test_refusal_does_not_repeat_the_token() -> None:
    """An error text may be logged; a token may not."""
    token = signed(claims(sub="a b"))

    assert not any(piece in refusal(token) for piece in token.split("."))


@given(st.text(max_size=200))
def test_any_text_is_refused_cleanly(text: str) -> None:
    """No input makes anything but a refusal."""
    refusal(text)


@given(st.dictionaries(st.sampled_from(["sub", "aud", "iat", "exp", "jti", "nbf", "iss"]),
                       st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                       | st.text() | st.lists(st.integers())))  # fmt: skip
def test_any_signed_claims_verify_to_an_id_or_are_refused(changes: dict[str, object]) -> None:
    """Any accepted claims have a user that is a valid id, and a bounded lifetime."""
    try:
        found = tokens().verify(signed(claims(**changes)))
    except Unauthenticated:
        return
    assert found.user.isascii() and 1 <= len(found.user) <= 64
    assert NOW - 60 < found.expires_at <= NOW + 3660
