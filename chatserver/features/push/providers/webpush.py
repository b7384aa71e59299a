"""Web Push provider (RFC 8030, 8291). Pushes are encrypted for the browser."""

from __future__ import annotations

from urllib.parse import urlsplit

import attrs
from pywebpush import WebPusher  # type: ignore[import-untyped]  # no type information

from chatserver.errors import BadRequest, Unavailable
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers.interface import (
    TIMEOUT_S,
    TTL_S,
    PushOutcome,
    SendResult,
    classify,
    classify_failure,
)
from chatserver.features.push.providers.vapid import VapidSigner
from chatserver.outbound.http_client import HttpClient

ANSWER_BYTES_MAX = 4_096


@attrs.define(eq=False, repr=False, kw_only=True)
class WebPush:
    """Sends pushes to browsers; implements `Provider`."""

    _outbound: HttpClient
    _signer: VapidSigner

    def get_host(self, subscription: Subscription) -> str:
        """Return the host of the browser's push service."""
        return urlsplit(subscription.target).netloc

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        """Send a notice; see `Provider`."""
        keys = {"p256dh": subscription.p256dh, "auth": subscription.auth}
        pusher = WebPusher({"endpoint": subscription.target, "keys": keys})
        try:
            body = bytes(pusher.encode(notice.encode(), "aes128gcm")["body"])
        except ValueError:
            return SendResult(PushOutcome.GONE, reason="invalid subscription keys")
        headers = {
            "Authorization": self._signer.authorize(subscription.target),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL_S),
            "Topic": notice.topic,
            "Urgency": "high",
        }
        try:
            response = await self._outbound.post(
                subscription.target,
                body=body,
                headers=headers,
                timeout_s=TIMEOUT_S,
                response_bytes_max=ANSWER_BYTES_MAX,
            )
        except (BadRequest, Unavailable) as exc:
            return classify_failure(exc)
        return classify(response)
