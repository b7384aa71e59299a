"""Session tokens: valid ones verify, and known attacks on JWT are refused."""

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

from chatserver.auth.access_tokens import TOKEN_BYTES_MAX, Claims, Tokens
from chatserver.config import Auth
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, ConfigError, Unauthenticated
from tests.support.fake_clocks import FakeClock

SECRET = "0123456789abcdef0123456789abcdef"
NOW = 1_790_000_000


def tokens(clock: FakeClock | None = None, **settings: Any) -> Tokens:
    return Tokens(Auth(secret=SecretStr(SECRET), **settings), clock or FakeClock(NOW))


def encode_part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(payload: object, header: object = None, key: str = SECRET) -> str:
    """Sign any payload and header as HS256, valid or not."""
    head = encode_part({"alg": "HS256", "typ": "chat+jwt"} if header is None else header)
    body = f"{head}.{encode_part(payload)}"
    mac = hmac.new(key.encode(), body.encode(), hashlib.sha256).digest()
    return f"{body}.{encode_part(mac)}"


def claims(**changes: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "sub": "alice",
        "aud": "chatserver",
        "iat": NOW,
        "exp": NOW + 600,
        "jti": "t1",
    }
    fields |= changes
    return {name: value for name, value in fields.items() if value is not ...}


def verify_error(token: str, verifier: Tokens | None = None) -> str:
    with pytest.raises(Unauthenticated) as caught:
        (verifier or tokens()).verify(token)
    return caught.value.message


def test_issued_token_verifies_to_its_user_and_expiry() -> None:
    """An issued token is valid for its user and for its lifetime."""
    found = tokens().verify(tokens().issue(UserId("alice"), 600))

    assert found == Claims(UserId("alice"), NOW + 600, found.jti)


def test_issued_tokens_have_different_ids() -> None:
    """Two tokens that a user gets in the same second differ, so one can be revoked."""
    both = {tokens().verify(tokens().issue(UserId("alice"), 600)).jti for _ in range(2)}

    assert len(both) == 2


def test_externally_signed_token_of_the_documented_form_verifies() -> None:
    """A login service with the secret can sign tokens from the documentation alone."""
    assert tokens().verify(sign(claims())).user == "alice"


@pytest.mark.parametrize("ttl_s", [0, -1, 3601])
def test_issue_with_lifetime_out_of_bounds_is_refused(ttl_s: int) -> None:
    """A token that would not verify is not signed."""
    with pytest.raises(BadRequest, match="ttl_s: must be 1 to 3600"):
        tokens().issue(UserId("alice"), ttl_s)


@pytest.mark.parametrize("user", ["", "a" * 65, "a#b", "a{b}", "a\n", "ä"])
def test_issue_for_invalid_user_id_is_refused(user: str) -> None:
    """The id grammar is also checked here."""
    with pytest.raises(BadRequest, match="user"):
        tokens().issue(UserId(user), 60)


def test_secret_of_31_bytes_is_refused_and_of_32_is_accepted() -> None:
    """A short secret is an error at startup, not a warning in a log."""
    Tokens(Auth(secret=SecretStr("x" * 32)), FakeClock(NOW))

    with pytest.raises(ConfigError, match="at least 32 bytes"):
        Tokens(Auth(secret=SecretStr("x" * 31)), FakeClock(NOW))


@pytest.mark.parametrize("name", ["exp", "iat", "sub", "aud", "jti"])
def test_error_for_missing_claim_names_the_claim(name: str) -> None:
    """A token without an expiry, for example, is invalid."""
    assert verify_error(sign(claims(**{name: ...}))) == f"token: {name} is missing"


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", ["1790000600", True, None, [NOW], {}, 10**400, 1e300])
def test_time_that_is_not_a_number_is_refused(name: str, value: object) -> None:
    """Strings, booleans, other types, and numbers that are no times are not valid."""
    assert "not a number of seconds" in verify_error(sign(claims(**{name: value})))


def test_times_may_have_fractions() -> None:
    """RFC 7519 allows them, and identity providers use them; the token ends no later."""
    verified = tokens().verify(sign(claims(iat=NOW - 0.75, exp=NOW + 60.75, nbf=NOW - 0.5)))

    assert (verified.issued_at, verified.expires_at) == (NOW - 1, NOW + 60)


@pytest.mark.parametrize("value", ["", "a" * 65, "a#b", "a{b}", "a\u0000", "a\n", "../x"])
@pytest.mark.parametrize("name", ["sub", "jti"])
def test_subject_or_token_id_with_invalid_characters_is_refused(name: str, value: str) -> None:
    """A signed id is still checked, because it becomes part of keys."""
    assert f"token: {name} is invalid" in verify_error(sign(claims(**{name: value})))


@pytest.mark.parametrize("value", [7, None, ["alice"], {"x": 1}, True])
def test_subject_that_is_not_a_string_is_refused(value: object) -> None:
    """Types are checked before use."""
    assert verify_error(sign(claims(sub=value))) == "token: has a sub that is not a string"


@pytest.mark.parametrize("aud", ["other", ["chatserver", "other"], [], None, "chatserver "])
def test_token_for_another_audience_is_refused(aud: object) -> None:
    """A token that another service would also accept is refused."""
    assert verify_error(sign(claims(aud=aud))) == "token: is for another audience"


def test_issuer_is_required_if_the_setting_names_one() -> None:
    """With `auth.issuer` set, only tokens of this issuer are valid."""
    strict = tokens(issuer="https://login.example")

    assert strict.verify(strict.issue(UserId("alice"), 60)).user == "alice"
    assert "another issuer" in verify_error(sign(claims()), strict)
    assert "another issuer" in verify_error(sign(claims(iss="https://evil.example")), strict)


def test_token_expires_after_its_leeway_and_not_before() -> None:
    """A token is valid up to the last second of the leeway."""
    token = sign(claims(exp=NOW + 600))

    assert tokens(FakeClock(NOW + 659.9)).verify(token).user == "alice"
    assert verify_error(token, tokens(FakeClock(NOW + 660))) == "token: has expired"


def test_token_from_the_future_beyond_the_leeway_is_refused() -> None:
    """Clocks may differ by a minute, no more."""
    ahead = sign(claims(iat=NOW + 60, exp=NOW + 600))
    too_far = sign(claims(iat=NOW + 61, exp=NOW + 600))

    assert tokens().verify(ahead).user == "alice"
    assert verify_error(too_far) == "token: was issued in the future"
    assert verify_error(sign(claims(nbf=NOW + 61))) == "token: is not valid yet"


def test_token_with_lifetime_above_an_hour_is_refused() -> None:
    """The limit is also checked on tokens that other services signed."""
    assert tokens().verify(sign(claims(exp=NOW + 3600))).expires_at == NOW + 3600
    assert "lifetime of 1 to 3600 seconds" in verify_error(sign(claims(exp=NOW + 3601)))
    assert "lifetime of 1 to 3600 seconds" in verify_error(sign(claims(iat=NOW, exp=NOW)))


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
    """Repeated names, NaN, deep nesting and invalid JSON are all refused with the same error."""
    assert verify_error(sign(payload)).startswith("token: ")


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
def test_header_of_any_other_form_is_refused(header: object) -> None:
    """Only one algorithm and one token type are accepted, and no key from the token itself."""
    assert verify_error(sign(claims(), header)).startswith("token: ")


def test_unsigned_token_is_refused() -> None:
    """A token with `alg: none` and an empty signature is malformed."""
    head, body, _ = sign(claims(), {"alg": "none", "typ": "chat+jwt"}).split(".")

    assert "three parts" in verify_error(f"{head}.{body}.")


def test_token_signed_with_another_key_is_refused() -> None:
    """Only the server's secret signs valid tokens."""
    assert "not signed with HS256 by this server" in verify_error(
        sign(claims(), key="another key of at least 32 bytes!!")
    )


def test_token_in_another_form_is_refused() -> None:
    """A token has one valid form: no padding, no whitespace, no other encoding."""
    token = sign(claims())
    for changed in (f"{token}=", f" {token}", f"{token}\n", token.replace(".", ".."), token[:-1]):
        assert verify_error(changed).startswith("token: ")


def test_token_of_more_than_4096_bytes_is_refused_before_parsing() -> None:
    """The length is checked before the token is parsed."""
    padded = sign(claims(pad="x" * 2000))
    too_long = "a" * (TOKEN_BYTES_MAX + 1)

    assert tokens().verify(padded).user == "alice"
    assert verify_error(too_long) == "token: is longer than 4096 bytes"


def test_error_does_not_contain_the_token() -> None:
    """An error message may be logged; a token may not."""
    token = sign(claims(sub="a b"))

    assert not any(each in verify_error(token) for each in token.split("."))


@given(st.text(max_size=200))
def test_any_text_as_a_token_is_unauthenticated(text: str) -> None:
    """Every input raises the same type of error."""
    verify_error(text)


@given(st.dictionaries(st.sampled_from(["sub", "aud", "iat", "exp", "jti", "nbf", "iss"]),
                       st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                       | st.text() | st.lists(st.integers())))  # fmt: skip
def test_any_signed_claims_verify_to_a_valid_id_or_are_refused(changes: dict[str, object]) -> None:
    """All accepted claims have a valid user id and a bounded lifetime."""
    try:
        found = tokens().verify(sign(claims(**changes)))
    except Unauthenticated:
        return
    assert found.user.isascii() and 1 <= len(found.user) <= 64
    assert NOW - 60 < found.expires_at <= NOW + 3660
