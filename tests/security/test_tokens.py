"""Tokens of ours and of the host application, line by line of security.md 2 and 4."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from pydantic import SecretStr, ValidationError

from chatserver.auth.host_keys import parse_jwks
from chatserver.auth.tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ConfigError, CorruptData, Unauthenticated, UnknownKey
from tests.security.support.tokens import (
    EC,
    ED,
    HOSTS,
    OURS,
    RSA,
    claims,
    jwk,
    key_set,
    pem,
    signed,
    tokens,
)

SOURCE = Path(__file__).parents[2] / "chatserver"

CASES = {
    "HS256": (HOSTS, {"host_secret": HOSTS}),
    "RS256": (RSA, {"host_public_keys": pem(RSA)}),
    "ES256": (EC, {"host_public_keys": pem(EC)}),
    "EdDSA": (ED, {"host_public_keys": pem(ED)}),
}


@pytest.mark.parametrize("algorithm", CASES)
def test_token_of_the_host_application_is_taken(algorithm: str) -> None:
    """Each algorithm, with the claims that any library makes; ours are taken beside it."""
    key, host = CASES[algorithm]
    using = tokens(host_algorithm=algorithm, **host)

    found = using.verify(signed(key, algorithm))

    assert (found.user, found.is_from_host, found.login) == ("zoe", True, None)
    assert using.verify(using.mint(UserId("yan"), 60)).user == "yan"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exp": ...}, "lacks exp"),
        ({"iat": ...}, "lacks iat"),
        ({"sub": ...}, "lacks sub"),
        ({"aud": ...}, "lacks aud"),
        ({"aud": "another"}, "another audience"),
        ({"aud": ["x", "y"]}, "another audience"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": ...}, "lacks iss"),
        ({"exp": 1}, "must have a lifetime"),
        ({"iat": 0, "exp": 600}, "has expired"),
        ({"exp": "soon"}, "whole number"),
        ({"exp": 1e300}, "whole number"),
        ({"iat": True}, "whole number"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"sub": "a#b"}, "wrong sub"),
        ({"sub": "a{b}"}, "wrong sub"),
        ({"sub": "a\n"}, "wrong sub"),
        ({"sub": "a\u0000"}, "wrong sub"),
        ({"sub": ""}, "wrong sub"),
        ({"sub": "a" * 65}, "wrong sub"),
        ({"sub": 7}, "not a string"),
    ],
    ids=str,
)
def test_section_4_claims_of_the_host_are_checked_all(change: dict[str, Any], why: str) -> None:
    """Claims that are missing, of another type, audience or time are refused."""
    using = tokens(host_algorithm="HS256", host_secret=HOSTS, host_issuer="https://host.example")
    payload = claims(**{"iss": "https://host.example"} | change)
    head, body, _ = signed(HOSTS, "HS256", claims(iss="https://host.example")).split(".")
    body = base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=").decode()
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    sign = mac.sign(f"{head}.{body}".encode(), HOSTS.encode())
    token = f"{head}.{body}.{base64.urlsafe_b64encode(sign).rstrip(b'=').decode()}"

    with pytest.raises(Unauthenticated, match=why):
        using.verify(token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_row_31_public_key_is_no_hmac_secret(algorithm: str) -> None:
    """The oldest trick: sign with the public key as if it were a secret (CVE-2022-29217)."""
    _, host = CASES[algorithm]
    using = tokens(host_algorithm=algorithm, **host)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode()).rstrip(b"=").decode()
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    sign = mac.sign(f"{head}.{body}".encode(), host["host_public_keys"].encode())
    forged = f"{head}.{body}.{base64.urlsafe_b64encode(sign).rstrip(b'=').decode()}"

    with pytest.raises(Unauthenticated):
        using.verify(forged)


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [(one, other) for one in CASES for other in (*CASES, "none", "HS512") if one != other],
)
def test_row_31_algorithm_is_ours_to_choose(algorithm: str, other: str) -> None:
    """A token that is signed well, in another way than the setting's, is refused."""
    _, host = CASES[algorithm]
    using = tokens(host_algorithm=algorithm, **host)
    key = {"none": None, "HS512": HOSTS * 2}.get(other, CASES.get(other, (None, {}))[0])

    with pytest.raises(Unauthenticated):
        using.verify(signed(key, other))


def test_row_31_key_of_the_host_signs_nothing_of_ours() -> None:
    """The host's secret is not ours: neither makes the other's tokens."""
    using = tokens(host_algorithm="HS256", host_secret=HOSTS)
    ours = claims(jti="x", login="l1")

    with pytest.raises(Unauthenticated):
        using.verify(signed(HOSTS, "HS256", ours, typ="chat+jwt"))
    with pytest.raises(Unauthenticated):
        using.verify(signed(OURS, "HS256"))
    found = using.verify(signed(HOSTS, "HS256", ours))
    assert found.login is None  # a login is for us to name


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "https://evil.example/keys"},
        {"jwk": {"kty": "oct", "k": "AAAA"}},
        {"x5u": "https://evil.example/cert"},
        {"crit": ["exp"]},
        {"b64": False, "crit": ["b64"]},
        {"kid": "../../etc/passwd"},
        {"kid": "a\n"},
        {"kid": "k" * 65},
        {"kid": 7},
    ],
    ids=str,
)
def test_row_14_header_says_nothing_about_where_keys_come_from(header: dict[str, Any]) -> None:
    """No URL, key or path in a token is ever followed, before or after the signature."""
    using = tokens(host_algorithm="HS256", host_secret=HOSTS)

    with contextlib.suppress(TypeError, jwt.InvalidTokenError):
        token = signed(HOSTS, "HS256", None, **header)
        with pytest.raises(Unauthenticated):
            using.verify(token)


def test_row_14_key_set_gives_only_keys_for_the_one_algorithm() -> None:
    """Keys for other uses, other algorithms, too short or private ones are left out."""
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1024)
    private = json.loads(RSAAlgorithm.to_jwk(RSA))
    others = [
        jwk(EC, "ec"),
        jwk(RSA, "enc", use="enc"),
        jwk(RSA, "ps", alg="PS256"),
        jwk(RSA, "a/b"),
        private | {"kid": "private"},
        {"kty": "oct", "k": "AAAA", "kid": "oct"},
    ]
    using = tokens(host_algorithm="RS256", host_jwks_url="https://host.example/keys")
    using.use_key_set(key_set(jwk(RSA, "good"), *others))

    assert using.verify(signed(RSA, "RS256", None, kid="good")).user == "zoe"
    for kid in ("enc", "ps", "private", "oct", "ec"):
        with pytest.raises(UnknownKey):
            using.verify(signed(RSA, "RS256", None, kid=kid))
    for bad in (key_set(*others), key_set(jwk(weak, "w")), b"{}", b"[", b"[" * 100_000, b""):
        with pytest.raises(CorruptData):
            parse_jwks(bad, "RS256")
    # The keys of before serve on: what is no key set replaces none.
    assert using.verify(signed(RSA, "RS256", None, kid="good")).user == "zoe"


@pytest.mark.parametrize(
    "fields",
    [
        {"secret": ""},
        {"secret": "short"},
        {"secret": OURS, "local_accounts": False, "host_algorithm": "HS256", "host_secret": "x"},
        {"secret": OURS, "local_accounts": False, "host_algorithm": "HS256", "host_secret": OURS},
        {"secret": OURS, "local_accounts": False, "host_algorithm": "RS256"},
        {"secret": OURS, "local_accounts": False, "host_algorithm": "RS256", "host_secret": HOSTS},
        {
            "secret": OURS,
            "local_accounts": False,
            "host_algorithm": "RS256",
            "host_public_keys": "not a key",
        },
        {
            "secret": OURS,
            "local_accounts": False,
            "host_algorithm": "RS256",
            "host_public_keys": pem(EC),
        },
        {"secret": OURS, "host_algorithm": "HS256", "host_secret": HOSTS},
        {"secret": OURS, "local_accounts": False, "host_secret": HOSTS},
        {"secret": OURS, "local_accounts": False, "host_algorithm": "none", "host_secret": HOSTS},
    ],
    ids=lambda fields: ",".join(fields),
)
def test_row_23_weak_missing_or_shared_secret_refuses_to_start(fields: dict[str, Any]) -> None:
    """There is no default key, no short one, and none that two sides share."""
    with pytest.raises((ConfigError, ValidationError)):
        Tokens(Auth.model_validate(fields), SystemClock())


def test_row_23_settings_show_no_secret() -> None:
    """Printed settings have asterisks in place of secrets."""
    auth = Auth(
        secret=SecretStr(OURS),
        local_accounts=False,
        host_algorithm="HS256",
        host_secret=SecretStr(HOSTS),
    )

    assert OURS not in repr(auth)
    assert HOSTS not in repr(auth)


def test_row_24_tokens_come_from_secrets_never_from_random() -> None:
    """`random` is for spreading waits; nothing that names or lets in anybody imports it."""
    for path in sorted((SOURCE / "auth").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = {
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
        } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert "random" not in names, path


def test_row_24_ids_of_tokens_do_not_repeat() -> None:
    """128 random bits and more in each."""
    using = tokens()
    seen = {using.verify(using.mint(UserId("zoe"), 60)).jti for _ in range(200)}

    assert len(seen) == 200
    assert min(map(len, seen)) >= 22


_COMPARED = re.compile(r"(digest|mac|secret|password|signature|hash)\b", re.IGNORECASE)


def test_row_08_secrets_are_compared_in_constant_time() -> None:
    """No `==` on a secret, digest or signature where somebody is let in."""
    found = []
    for path in [
        *(SOURCE / "auth").glob("*.py"),
        SOURCE / "service" / "access" / "api_keys.py",
        SOURCE / "features" / "accounts" / "service" / "logins.py",
        SOURCE / "features" / "accounts" / "service" / "accounts.py",
    ]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare) and any(
                isinstance(op, ast.Eq | ast.NotEq) for op in node.ops
            ):
                text = ast.unparse(node)
                if _COMPARED.search(text):
                    found.append(f"{path.name}: {text}")
    # One compares two settings with each other at the start, where nobody can measure.
    assert found == ["host_keys.py: secret == settings.secret.get_secret_value().encode()"]
