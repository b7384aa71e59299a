"""Parsing of JWT headers and claims after the signature check. Pure functions.

PyJWT checks only the signature. By itself, it would accept tokens that never expire, very short
signing keys, and duplicate JSON keys.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, NoReturn

from jwt.utils import base64url_decode

from chatserver.domain.access.logins import Claims
from chatserver.domain.companion_ids import parse_person_id
from chatserver.domain.ids import parse_id
from chatserver.errors import BadRequest, Unauthenticated

TOKEN_BYTES_MAX = 4096
_TIME_MAX = 2**53
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRules:
    """The required claims for one kind of token."""

    required: tuple[str, ...]
    audience: str
    issuer: str | None
    lifetime_s_max: int
    leeway_s: int
    is_from_host: bool = False


def refuse(reason: str) -> NoReturn:
    """Raise the error for an invalid token; `reason` must not quote the token."""
    raise Unauthenticated(f"token: {reason}") from None


def check_shape(token: str) -> None:
    """Reject text that cannot be a token, before decoding any of it."""
    # Check the length in characters: encoding a huge string to count its bytes is expensive.
    if len(token) > TOKEN_BYTES_MAX:
        refuse(f"is longer than {TOKEN_BYTES_MAX} bytes")
    if _SHAPE.fullmatch(token) is None:
        refuse("is not three parts of base64url joined by dots")


def read_header(token: str) -> dict[str, Any]:
    """Return a token's unverified header; use it only to select a configured key."""
    try:
        data = base64url_decode(token.partition(".")[0])
    except ValueError:
        refuse("has a header part that is not base64url")
    return parse_object(data, "header")


def read_claims(payload: bytes, rules: ClaimRules, now: float) -> Claims:
    """Check the claims of a payload with a valid signature, and return them.

    Raises:
        Unauthenticated: the claims are missing, malformed, expired or for another audience.
    """
    claims = parse_object(payload, "claims")
    missing = [name for name in rules.required if name not in claims]
    if missing:
        refuse(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if not _is_for_us(claims["aud"], rules):
        refuse("is for another audience")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        refuse("is from another issuer")
    issued, expires = _check_times(claims, rules, now)
    try:
        user = parse_person_id(_get_text(claims, "sub"), "sub")
        # Tokens of the host application may have any `jti`, or none.
        jti = "" if rules.is_from_host else parse_id(_get_text(claims, "jti"), "jti")
        login = None
        if not rules.is_from_host and "login" in claims:
            login = parse_id(_get_text(claims, "login"), "login")
    except BadRequest as exc:
        field, _, reason = exc.message.partition(": ")
        refuse(f"{field} is invalid: {reason}")
    return Claims(
        user=user,
        expires_at=expires,
        jti=jti,
        issued_at=issued,
        login=login,
        is_from_host=rules.is_from_host,
        is_new_account=claims.get("new_account") is True,
    )


def _is_for_us(audience: Any, rules: ClaimRules) -> bool:
    if audience in (rules.audience, [rules.audience]):
        return True
    # Identity providers may issue one token for several audiences; this server does not.
    return rules.is_from_host and isinstance(audience, list) and rules.audience in audience


def _check_times(claims: dict[str, Any], rules: ClaimRules, now: float) -> tuple[int, int]:
    issued, expires = _get_time(claims, "iat"), _get_time(claims, "exp")
    if not 0 < expires - issued <= rules.lifetime_s_max:
        refuse(f"must have a lifetime of 1 to {rules.lifetime_s_max} seconds")
    if now >= expires + rules.leeway_s:
        refuse("has expired")
    if issued > now + rules.leeway_s:
        refuse("was issued in the future")
    if "nbf" in claims and _get_time(claims, "nbf") > now + rules.leeway_s:
        refuse("is not valid yet")
    return int(issued), int(expires)


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object; reject duplicate JSON keys at any depth."""
    try:
        value = json.loads(
            data, object_pairs_hook=_without_repeats, parse_constant=_reject_constant
        )
    except (ValueError, RecursionError):
        refuse(f"has a {what} part that is not JSON or has a duplicate key")
    if not isinstance(value, dict):
        refuse(f"has a {what} part that is not a JSON object")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _get_text(claims: dict[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str):
        refuse(f"has a {name} that is not a string")
    return value


def _get_time(claims: dict[str, Any], name: str) -> int | float:
    """Return a NumericDate (RFC 7519): seconds since 1970, which may have a fraction."""
    value = claims[name]
    # `isinstance(value, int)` would accept a bool. A float may be infinite.
    if type(value) not in (int, float) or not abs(value) < _TIME_MAX:
        refuse(f"has a {name} that is not a number of seconds")
    return value  # type: ignore[no-any-return]  # an int or a float, see above
