"""Tokens of the server and of the host application (rows 14, 23, 24, 31, section 4)."""

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

from chatserver.auth.access_tokens import Tokens
from chatserver.auth.host_keys import parse_jwks
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ConfigError, CorruptData, Unauthenticated, UnknownKey
from tests.security.support.tokens import (
    EC,
    ED,
    HOST_SECRET,
    RSA,
    SERVER_SECRET,
    claims,
    jwk,
    key_set,
    pem,
    signed,
    tokens,
)

SOURCE = Path(__file__).parents[2] / "chatserver"

CASES = {
    "HS256": (HOST_SECRET, {"host_secret": HOST_SECRET}),
    "RS256": (RSA, {"host_public_keys": pem(RSA)}),
    "ES256": (EC, {"host_public_keys": pem(EC)}),
    "EdDSA": (ED, {"host_public_keys": pem(ED)}),
}


@pytest.mark.parametrize("algorithm", CASES)
def test_token_of_the_host_application_is_accepted(algorithm: str) -> None:
    """Each algorithm is accepted with its key. Tokens of the server remain valid."""
    key, host = CASES[algorithm]
    verifier = tokens(host_algorithm=algorithm, **host)

    found = verifier.verify(signed(key, algorithm))

    assert (found.user, found.is_from_host, found.login) == ("zoe", True, None)
    assert verifier.verify(verifier.issue(UserId("yan"), 60)).user == "yan"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exp": ...}, "exp is missing"),
        ({"iat": ...}, "iat is missing"),
        ({"sub": ...}, "sub is missing"),
        ({"aud": ...}, "aud is missing"),
        ({"aud": "another"}, "another audience"),
        ({"aud": ["x", "y"]}, "another audience"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": ...}, "iss is missing"),
        ({"exp": 1}, "must have a lifetime"),
        ({"iat": 0, "exp": 600}, "has expired"),
        ({"exp": "soon"}, "number of seconds"),
        ({"exp": 1e300}, "number of seconds"),
        ({"iat": True}, "number of seconds"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"sub": "a#b"}, "sub is invalid"),
        ({"sub": "a{b}"}, "sub is invalid"),
        ({"sub": "a\n"}, "sub is invalid"),
        ({"sub": "a\u0000"}, "sub is invalid"),
        ({"sub": ""}, "sub is invalid"),
        ({"sub": "a" * 65}, "sub is invalid"),
        ({"sub": 7}, "not a string"),
    ],
    ids=str,
)
def test_section_4_host_token_with_invalid_claim_is_refused(
    change: dict[str, Any], reason: str
) -> None:
    """The claim is missing, of the wrong type, for another audience or expired."""
    verifier = tokens(
        host_algorithm="HS256", host_secret=HOST_SECRET, host_issuer="https://host.example"
    )
    payload = claims(**{"iss": "https://host.example"} | change)
    head, body, _ = signed(HOST_SECRET, "HS256", claims(iss="https://host.example")).split(".")
    body = base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=").decode()
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    sign = mac.sign(f"{head}.{body}".encode(), HOST_SECRET.encode())
    token = f"{head}.{body}.{base64.urlsafe_b64encode(sign).rstrip(b'=').decode()}"

    with pytest.raises(Unauthenticated, match=reason):
        verifier.verify(token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_row_31_token_signed_with_the_public_key_as_secret_is_refused(algorithm: str) -> None:
    """Algorithm confusion: the public key is used as an HMAC secret (CVE-2022-29217)."""
    _, host = CASES[algorithm]
    verifier = tokens(host_algorithm=algorithm, **host)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode()).rstrip(b"=").decode()
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    sign = mac.sign(f"{head}.{body}".encode(), host["host_public_keys"].encode())
    forged = f"{head}.{body}.{base64.urlsafe_b64encode(sign).rstrip(b'=').decode()}"

    with pytest.raises(Unauthenticated):
        verifier.verify(forged)


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [(one, other) for one in CASES for other in (*CASES, "none", "HS512") if one != other],
)
def test_row_31_token_with_another_algorithm_is_refused(algorithm: str, other: str) -> None:
    """A valid signature with another algorithm than the configured one is refused."""
    _, host = CASES[algorithm]
    verifier = tokens(host_algorithm=algorithm, **host)
    key = {"none": None, "HS512": HOST_SECRET * 2}.get(other, CASES.get(other, (None, {}))[0])

    with pytest.raises(Unauthenticated):
        verifier.verify(signed(key, other))


def test_row_31_host_secret_cannot_sign_server_tokens() -> None:
    """Neither secret can sign tokens of the other kind."""
    verifier = tokens(host_algorithm="HS256", host_secret=HOST_SECRET)
    server_claims = claims(jti="x", login="l1")

    with pytest.raises(Unauthenticated):
        verifier.verify(signed(HOST_SECRET, "HS256", server_claims, typ="chat+jwt"))
    with pytest.raises(Unauthenticated):
        verifier.verify(signed(SERVER_SECRET, "HS256"))
    found = verifier.verify(signed(HOST_SECRET, "HS256", server_claims))
    assert found.login is None  # only the server assigns logins


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
def test_row_14_key_location_in_the_token_header_is_refused(header: dict[str, Any]) -> None:
    """URLs, keys and paths in the token header are never used."""
    verifier = tokens(host_algorithm="HS256", host_secret=HOST_SECRET)

    with contextlib.suppress(TypeError, jwt.InvalidTokenError):
        token = signed(HOST_SECRET, "HS256", None, **header)
        with pytest.raises(Unauthenticated):
            verifier.verify(token)


def test_row_14_key_set_ignores_unsuitable_keys() -> None:
    """Keys for other uses or algorithms, short keys and private keys are ignored."""
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
    verifier = tokens(host_algorithm="RS256", host_jwks_url="https://host.example/keys")
    verifier.replace_key_set(key_set(jwk(RSA, "good"), *others))

    assert verifier.verify(signed(RSA, "RS256", None, kid="good")).user == "zoe"
    for kid in ("enc", "ps", "private", "oct", "ec"):
        with pytest.raises(UnknownKey):
            verifier.verify(signed(RSA, "RS256", None, kid=kid))
    for bad in (key_set(*others), key_set(jwk(weak, "w")), b"{}", b"[", b"[" * 100_000, b""):
        with pytest.raises(CorruptData):
            parse_jwks(bad, "RS256")
    # The previous keys remain in use, because an invalid key set does not replace them.
    assert verifier.verify(signed(RSA, "RS256", None, kid="good")).user == "zoe"


@pytest.mark.parametrize(
    "fields",
    [
        {"secret": ""},
        {"secret": "short"},
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "HS256",
            "host_secret": "x",
        },
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "HS256",
            "host_secret": SERVER_SECRET,
        },
        {"secret": SERVER_SECRET, "local_accounts": False, "host_algorithm": "RS256"},
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "RS256",
            "host_secret": HOST_SECRET,
        },
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "RS256",
            "host_public_keys": "not a key",
        },
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "RS256",
            "host_public_keys": pem(EC),
        },
        {"secret": SERVER_SECRET, "host_algorithm": "HS256", "host_secret": HOST_SECRET},
        {"secret": SERVER_SECRET, "local_accounts": False, "host_secret": HOST_SECRET},
        {
            "secret": SERVER_SECRET,
            "local_accounts": False,
            "host_algorithm": "none",
            "host_secret": HOST_SECRET,
        },
    ],
    ids=lambda fields: ",".join(fields),
)
def test_row_23_weak_missing_or_shared_secret_prevents_start(fields: dict[str, Any]) -> None:
    """A default, short or shared secret is a configuration error."""
    with pytest.raises((ConfigError, ValidationError)):
        Tokens(Auth.model_validate(fields), SystemClock())


def test_row_23_printed_settings_contain_no_secret() -> None:
    """The repr of the settings shows asterisks instead of secrets."""
    auth = Auth(
        secret=SecretStr(SERVER_SECRET),
        local_accounts=False,
        host_algorithm="HS256",
        host_secret=SecretStr(HOST_SECRET),
    )

    assert SERVER_SECRET not in repr(auth)
    assert HOST_SECRET not in repr(auth)


def test_row_24_auth_modules_do_not_import_random() -> None:
    """Tokens and keys are generated by `secrets`."""
    for path in sorted((SOURCE / "auth").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = {
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
        } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert "random" not in names, path


def test_row_24_token_ids_are_unique() -> None:
    """Each id has at least 128 random bits."""
    verifier = tokens()
    ids = {verifier.verify(verifier.issue(UserId("zoe"), 60)).jti for _ in range(200)}

    assert len(ids) == 200
    assert min(map(len, ids)) >= 22


_COMPARED = re.compile(r"(digest|mac|secret|password|signature|hash)\b", re.IGNORECASE)


def test_row_08_secrets_are_compared_in_constant_time() -> None:
    """No authentication module uses `==` on a secret, digest or signature."""
    found = []
    for path in [
        *(SOURCE / "auth").glob("*.py"),
        SOURCE / "service" / "access" / "api_keys.py",
        SOURCE / "features" / "accounts" / "service" / "login_tokens.py",
        SOURCE / "features" / "accounts" / "service" / "password_logins.py",
    ]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare) and any(
                isinstance(op, ast.Eq | ast.NotEq) for op in node.ops
            ):
                text = ast.unparse(node)
                if _COMPARED.search(text):
                    found.append(f"{path.name}: {text}")
    # This compares two settings at startup, so no timing attack is possible.
    assert found == ["host_keys.py: secret == settings.secret.get_secret_value().encode()"]
