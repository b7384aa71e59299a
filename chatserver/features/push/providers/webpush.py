"""Web Push (RFC 8030, 8291): encrypted for one browser, sent to the browser's push service."""

from __future__ import annotations

import base64
import ipaddress
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from pywebpush import WebPusher  # type: ignore[import-untyped]  # no type information

from chatserver.errors import BadRequest, Unavailable
from chatserver.features.push.model import (
    AUTH_BYTES,
    ENDPOINT_CHARS_MAX,
    P256DH_BYTES,
    Notice,
    Subscription,
    parse_key,
)
from chatserver.features.push.providers.interface import (
    Outcome,
    Verdict,
    classify,
    classify_failure,
)
from chatserver.features.push.providers.vapid import VapidSigner
from chatserver.outbound.destinations import Destinations, parse_url
from chatserver.outbound.http_client import Outbound

ANSWER_BYTES_MAX = 4_096


def check_endpoint(endpoint: str, allowed: Destinations) -> str:
    """Validate the endpoint of a browser.

    The endpoint must be a public https service. For development, plain http is allowed for IP
    addresses in `outbound.allow_private`. The addresses of a host name are checked at each call.

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
        raise BadRequest("endpoint: must be a public address with a port in outbound.ports")
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
        raise BadRequest("keys.p256dh: not a point on the P-256 curve") from None
    return point, parse_key(auth, "keys.auth", AUTH_BYTES)


class WebPush:
    """Push provider for browsers; implements `Provider`."""

    def __init__(
        self, *, outbound: Outbound, signer: VapidSigner, timeout_s: float, ttl_s: int
    ) -> None:
        self._outbound = outbound
        self._signer = signer
        self._timeout_s = timeout_s
        self._ttl_s = ttl_s

    def lane_of(self, subscription: Subscription) -> str:
        """Return the host of the browser's push service."""
        return urlsplit(subscription.target).netloc

    async def send(self, subscription: Subscription, notice: Notice) -> Verdict:
        """Send a notice; see `Provider`."""
        keys = {"p256dh": subscription.p256dh, "auth": subscription.auth}
        pusher = WebPusher({"endpoint": subscription.target, "keys": keys})
        try:
            body = bytes(pusher.encode(notice.encode(), "aes128gcm")["body"])
        except ValueError:
            return Verdict(Outcome.GONE, reason="invalid subscription keys")
        headers = {
            "Authorization": self._signer.authorize(subscription.target),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(self._ttl_s),
            "Topic": notice.topic,
            "Urgency": "high",
        }
        try:
            answer = await self._outbound.post(
                subscription.target,
                body=body,
                headers=headers,
                timeout_s=self._timeout_s,
                answer_bytes_max=ANSWER_BYTES_MAX,
            )
        except (BadRequest, Unavailable) as exc:
            return classify_failure(exc)
        return classify(answer)
