"""FCM provider (HTTP v1 API), for applications on Android, and on iOS if they use FCM.

A service account key is exchanged for an access token that is valid for an hour. Google can
read the preview, because pushes are not end-to-end encrypted. Set `notify.preview` to off to omit
it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt

from chatserver.domain.clock import Clock
from chatserver.errors import BadRequest, ConfigError, Unavailable
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers.interface import (
    TIMEOUT_S,
    TTL_S,
    PushOutcome,
    SendResult,
    classify,
    classify_failure,
)
from chatserver.outbound.http_client import Answer, HttpClient

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ANSWER_BYTES_MAX = 16_384
TOKEN_S = 3_600
EXPIRY_MARGIN_S = 120  # tokens are renewed this long before they expire
WITHOUT_PREVIEW = "New message"


class ServiceAccount:
    """A Google service account, parsed from its JSON key file."""

    def __init__(self, text: str) -> None:
        try:
            fields = json.loads(text)
            self.project = str(fields["project_id"])
            self.email = str(fields["client_email"])
            self.token_url = str(fields["token_uri"])
            self._key = str(fields["private_key"])
            self._key_id = str(fields.get("private_key_id", ""))
            self.sign("", 0)
        except (ValueError, KeyError, TypeError, jwt.PyJWTError):
            raise ConfigError(
                "notify.fcm_account: is not the JSON key file of a Google service account"
            ) from None

    def sign(self, audience: str, now: int) -> str:
        """Return a signed assertion, which can be exchanged for an access token."""
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            "aud": audience,
            "iat": now,
            "exp": now + TOKEN_S,
        }
        return jwt.encode(claims, self._key, "RS256", headers={"kid": self._key_id})


class Fcm:
    """`Provider` for applications that use FCM."""

    def __init__(
        self, *, outbound: HttpClient, account: ServiceAccount, clock: Clock, url: str
    ) -> None:
        self._outbound = outbound
        self._account = account
        self._clock = clock
        self._url = f"{url.rstrip('/')}/v1/projects/{account.project}/messages:send"
        self._token = ""
        self._token_until = 0.0
        self._token_lock = asyncio.Lock()

    def get_host(self, subscription: Subscription) -> str:
        return urlsplit(self._url).netloc

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        """Send a notice; see `Provider`."""
        try:
            token = await self._get_token()
        except (BadRequest, Unavailable) as exc:
            return SendResult(PushOutcome.DOWN, reason=exc.message)  # the push was not sent
        body = json.dumps(self.build_message(subscription, notice), ensure_ascii=False).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            response = await self._outbound.post(
                self._url,
                body=body,
                headers=headers,
                timeout_s=TIMEOUT_S,
                response_bytes_max=ANSWER_BYTES_MAX,
            )
        except (BadRequest, Unavailable) as exc:
            return classify_failure(exc)
        return self._classify(response)

    def build_message(self, subscription: Subscription, notice: Notice) -> dict[str, Any]:
        android: dict[str, Any] = {"tag": notice.chat}
        aps: dict[str, Any] = {"sound": "default", "thread-id": notice.chat}
        if notice.badge is not None:
            android["notification_count"] = aps["badge"] = notice.badge
        expires = int(self._clock.time()) + TTL_S
        message = {
            "token": subscription.target,
            "notification": {
                "title": notice.headline,
                "body": notice.preview or WITHOUT_PREVIEW,
            },
            "data": {"chat": notice.chat, "seq": str(notice.seq), "sender": notice.sender},
            "android": {
                "collapse_key": notice.topic,
                "priority": "HIGH",
                "ttl": f"{TTL_S}s",
                "notification": android,
            },
            "apns": {
                "headers": {
                    "apns-collapse-id": notice.topic,
                    "apns-priority": "10",
                    "apns-expiration": str(expires),
                },
                "payload": {"aps": aps},
            },
        }
        return {"message": message}

    def _classify(self, response: Answer) -> SendResult:
        result = classify(response)
        code = _find_error_code(response)
        if code in ("UNREGISTERED", "SENDER_ID_MISMATCH"):
            return SendResult(PushOutcome.GONE, reason=code)
        if result.outcome is PushOutcome.GONE:
            # Google does not know the project. The device may be valid: keep the subscription.
            return SendResult(PushOutcome.REFUSED, reason=code or result.reason)
        if response.status == 401:
            self._token = ""
            return SendResult(PushOutcome.DOWN, reason="access token was rejected")
        return result

    async def _get_token(self) -> str:
        async with self._token_lock:
            now = self._clock.time()
            if self._token and now < self._token_until:
                return self._token
            form = {
                "grant_type": GRANT,
                "assertion": self._account.sign(self._account.token_url, int(now)),
            }
            response = await self._outbound.post(
                self._account.token_url,
                body=urlencode(form).encode(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                timeout_s=TIMEOUT_S,
                response_bytes_max=ANSWER_BYTES_MAX,
            )
            fields = _decode_fields(response)
            token = fields.get("access_token")
            if not response.is_ok or not isinstance(token, str):
                raise Unavailable(f"FCM: Google returned no access token: status {response.status}")
            lifetime_s = fields.get("expires_in")
            self._token = token
            self._token_until = (
                now + (lifetime_s if isinstance(lifetime_s, int) else TOKEN_S) - EXPIRY_MARGIN_S
            )
            return token


def _decode_fields(response: Answer) -> dict[str, Any]:
    try:
        fields = json.loads(response.body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _find_error_code(response: Answer) -> str:
    error = _decode_fields(response).get("error")
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("errorCode"), str):
            return str(detail["errorCode"])
    return ""
