"""Validation of Web Push subscriptions: endpoint and keys.

This module is separate from the provider, because the API does not need the provider's libraries,
which take 0.1 s to import.
"""

from __future__ import annotations

import base64
import ipaddress

from cryptography.hazmat.primitives.asymmetric import ec

from chatserver.errors import BadRequest
from chatserver.features.push.model import (
    AUTH_BYTES,
    ENDPOINT_CHARS_MAX,
    P256DH_BYTES,
    parse_key,
)
from chatserver.outbound.allowed_destinations import Destinations, parse_url


def check_endpoint(endpoint: str, allowed: Destinations) -> str:
    """Validate the push endpoint of a browser.

    The endpoint must be a public https URL. For development, http is allowed for IP addresses in
    `outbound.allow_private`. Host names are not resolved here; their addresses are checked on each
    call.

    Raises:
        BadRequest: the endpoint is not allowed.
    """
    if len(endpoint) > ENDPOINT_CHARS_MAX:
        raise BadRequest(f"endpoint: must be at most {ENDPOINT_CHARS_MAX} characters")
    url = parse_url(endpoint)
    try:
        address = ipaddress.ip_address(url.host or "")
    except ValueError:
        address = None
    is_private = address is not None and allowed.is_private(address)
    if url.scheme != "https" and not is_private:
        raise BadRequest("endpoint: must begin with https://")
    if address is not None and not allowed.is_allowed(str(address), url.port or 0):
        raise BadRequest(
            "endpoint: must be a public address with an allowed port (setting outbound.ports)"
        )
    return endpoint


def check_keys(p256dh: str, auth: str) -> tuple[str, str]:
    """Validate the keys of a browser; return them without padding.

    Raises:
        BadRequest: a key is invalid.
    """
    point = parse_key(p256dh, "keys.p256dh", P256DH_BYTES)
    try:
        raw = base64.urlsafe_b64decode(point + "=" * (-len(point) % 4))
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
    except ValueError:
        raise BadRequest("keys.p256dh: must be a point on the P-256 curve") from None
    return point, parse_key(auth, "keys.auth", AUTH_BYTES)
