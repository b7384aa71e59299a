"""Types of settings that are URLs or web origins.

No error message contains the value, because it may contain a password.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import AfterValidator

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*A-Z]+")
_OPAQUE_ORIGINS = ("null", "file://")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# The options of redis-py that this server supports. Credentials as options are for unix sockets.
_REDIS_OPTIONS = {
    "redis": {"db"},
    "rediss": {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"},
    "unix": {"db", "username", "password"},
}
_REDIS_FORM = "must be redis://user:password@host:port/database, rediss:// for TLS, or unix://path"
_PERCENT_ENCODE = (
    "cannot be parsed; percent-encode special characters in the user name and the password, for "
    "example %40 for @, %2F for /, %23 for # and %3F for ?"
)


def _split(text: str, problem: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0
    except ValueError:  # its text may contain a part of the password
        raise ValueError(problem) from None
    if not has_port or any(char.isspace() for char in text):
        raise ValueError(problem)
    return parts


def _starts_with(*schemes: str) -> AfterValidator:
    problem = f"must begin with {' or '.join(f'{name}://' for name in schemes)}, followed by a host"

    def check(text: str) -> str:
        parts = _split(text, problem)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(problem)
        return text

    return AfterValidator(check)


def _check_origin(text: str) -> str:
    problem = (
        "must be an origin as browsers send it: scheme://host or scheme://host:port, in lower "
        "case, without a path and without the default port, for example https://chat.example.com"
    )
    if text in _OPAQUE_ORIGINS:
        return text
    parts = _split(text, problem)
    is_default = parts.port is not None and _DEFAULT_PORTS.get(parts.scheme) == parts.port
    if _ORIGIN.fullmatch(text) is None or is_default:
        raise ValueError(problem)
    return text


def _check_cors_origin(text: str) -> str:
    if text != "*":
        _check_origin(text.replace("*", "any", 1))
    return text


def _check_redis_url(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in _REDIS_OPTIONS:
        raise ValueError(_REDIS_FORM)
    # The first of these characters ends the authority, unless it is percent-encoded.
    _, *after = re.split(r"[/?#]", rest, maxsplit=1)
    if scheme != "unix" and after and "@" in after[0]:
        raise ValueError(_PERCENT_ENCODE)
    parts = _split(text, _PERCENT_ENCODE if "@" in rest else _REDIS_FORM)
    if parts.fragment or (scheme != "unix" and not re.fullmatch(r"(/\d*)?", parts.path)):
        raise ValueError(_PERCENT_ENCODE if "@" in rest else _REDIS_FORM)
    options = parse_qs(parts.query, keep_blank_values=True)
    if not all(number.isdecimal() for number in options.get("db", ())):
        raise ValueError("db: must be the number of a database")
    unknown = options.keys() - _REDIS_OPTIONS[scheme]
    if unknown:
        known = ", ".join(sorted(_REDIS_OPTIONS[scheme]))
        raise ValueError(f"has an unknown option; {scheme}:// has these options: {known}")
    return text


HttpUrl = Annotated[str, _starts_with("http", "https")]
WebSocketUrl = Annotated[str, _starts_with("ws", "wss")]
RedisUrl = Annotated[str, AfterValidator(_check_redis_url)]
Origin = Annotated[str, AfterValidator(_check_origin)]
CorsOrigin = Annotated[str, AfterValidator(_check_cors_origin)]  # may contain one `*`, as in S3
