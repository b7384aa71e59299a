"""Access tokens: signed proof of a client's identity, valid for one hour at most.

A token is a JWT (RFC 7519) in one of two narrow formats; all others are rejected.

Tokens of this server, signed with `auth.secret`:

    header    {"alg": "HS256", "typ": "chat+jwt"}, nothing more
    claims    sub  the user, an id          aud  our audience     jti  an id of the token
              iat, exp  seconds, exp - iat at most `lifetime_s_max`
              iss  if `auth.issuer` is set;  nbf  checked if present
              login  the login it was issued for, if any;  other claims are ignored
              new_account  true while the account is new, which has stricter limits

Tokens of the host application, if `auth.host_algorithm` is set: signed with that algorithm and one
of the host's keys (`chatserver.auth.host_keys`). `typ` is absent or differs; `jti` is ignored. The
host may set `new_account`, too.

The unverified header determines only which of these formats and which configured key to try, never
the algorithm.

Trust: anyone with the secret can act as any user. To rotate the secret, restart all processes with
a new one.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

from chatserver.auth import claim_checks
from chatserver.auth.claim_checks import TOKEN_BYTES_MAX, ClaimRules, refuse
from chatserver.auth.host_keys import HostKeys, parse_jwks, read_static_keys
from chatserver.config import Auth
from chatserver.config.auth import TOKEN_LEEWAY_S
from chatserver.domain.access.logins import Claims
from chatserver.domain.clock import Clock
from chatserver.domain.companion_ids import parse_person_id
from chatserver.domain.ids import UserId, parse_id
from chatserver.errors import BadRequest, ConfigError

ACCESS_TTL_S = 900  # lifetime of an access token
ALGORITHM = "HS256"
TYPE = "chat+jwt"
KEY_BYTES_MIN = 32  # minimum length of the HS256 key (RFC 7518 section 3.2)

__all__ = ["KEY_BYTES_MIN", "TOKEN_BYTES_MAX", "Claims", "Tokens"]


class Tokens:
    """Creates tokens with `auth.secret`; verifies these and tokens of the host application."""

    def __init__(self, settings: Auth, clock: Clock) -> None:
        """Load the signing secret and the static keys of the host application.

        Raises:
            ConfigError: the secret is shorter than 32 bytes, or a key of the host is invalid.
        """
        self._key = settings.secret.get_secret_value().encode()
        if len(self._key) < KEY_BYTES_MIN:
            raise ConfigError(f"auth.secret: must be at least {KEY_BYTES_MIN} bytes")
        self._settings = settings
        self._clock = clock
        self._jws = PyJWS(algorithms=[ALGORITHM])
        self._ours = ClaimRules(
            ("exp", "iat", "sub", "aud", "jti"),
            settings.audience,
            settings.issuer,
            settings.lifetime_s_max,
            TOKEN_LEEWAY_S,
        )
        self._hosts = ClaimRules(
            ("exp", "iat", "sub", "aud", *(("iss",) if settings.host_issuer else ())),
            settings.host_audience or settings.audience,
            settings.host_issuer,
            settings.lifetime_s_max,
            TOKEN_LEEWAY_S,
            is_from_host=True,
        )
        self._host_keys = read_static_keys(settings)

    def replace_key_set(self, body: bytes | None) -> None:
        """Replace the key set (RFC 7517) of the host application; None removes it.

        Raises:
            CorruptData: the body is not a key set with a usable key; the previous keys stay.
        """
        algorithm = self._settings.host_algorithm
        assert algorithm is not None
        empty = HostKeys(algorithm, [], is_fetched=True)
        self._host_keys = empty if body is None else parse_jwks(body, algorithm)

    def issue(
        self, user: UserId, ttl_s: int, login: str | None = None, *, is_new_account: bool = False
    ) -> str:
        """Return a token for `user` that is valid for `ttl_s` seconds, or until its login ends.

        Raises:
            BadRequest: the user is not an id, or `ttl_s` is not in [1, `lifetime_s_max`].
        """
        longest = self._settings.lifetime_s_max
        if not 1 <= ttl_s <= longest:
            raise BadRequest(f"ttl_s: must be 1 to {longest}")
        now = int(self._clock.time())
        claims: dict[str, Any] = {
            "sub": parse_person_id(user, "user"),
            "aud": self._settings.audience,
            "iat": now,
            "exp": now + ttl_s,
            "jti": secrets.token_urlsafe(16),
        }
        if self._settings.issuer is not None:
            claims["iss"] = self._settings.issuer
        if login is not None:
            claims["login"] = parse_id(login, "login")
        if is_new_account:
            claims["new_account"] = True
        return self._jws.encode(
            json.dumps(claims).encode(), self._key, algorithm=ALGORITHM, headers={"typ": TYPE}
        )

    def verify(self, token: str) -> Claims:
        """Return the claims of `token` if it is valid now. Revocation is checked separately.

        Raises:
            Unauthenticated: the token is invalid; the message gives the reason, never the token.
            UnknownKey: the token names a key of the host application that is not loaded yet.
        """
        claim_checks.check_shape(token)
        if self._settings.host_algorithm is not None:
            header = claim_checks.read_header(token)
            if header.get("typ") != TYPE:
                payload = self._host_keys.verify(token, header)
                return claim_checks.read_claims(payload, self._hosts, self._clock.time())
        try:
            payload = self._jws.decode(token, self._key, algorithms=[ALGORITHM])
        except (PyJWTError, NotImplementedError):
            refuse("is not signed with HS256 by this server")
        if claim_checks.read_header(token) != {"alg": ALGORITHM, "typ": TYPE}:
            refuse(f'must have exactly the header alg "{ALGORITHM}" and typ "{TYPE}"')
        return claim_checks.read_claims(payload, self._ours, self._clock.time())
