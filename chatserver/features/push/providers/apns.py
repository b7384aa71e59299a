"""APNs provider (HTTP/2 API of Apple), for applications on iOS, iPadOS, macOS and watchOS.

A key (.p8 file) of the Apple developer account signs a provider token, which must be renewed every
20 to 60 minutes. Apple can read the preview, because pushes are not end-to-end encrypted. Set
`notify.preview` to off to omit it.

Responses are classified by status and reason. `TooManyRequests` affects one device. After
`BadDeviceToken`, `Unregistered` or `ExpiredToken`, the subscription is removed. After
`ExpiredProviderToken`, the push is retried with a new provider token. The operator must fix the
cause of any other 400 or 403. https://developer.apple.com/documentation/usernotifications
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import attrs
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from chatserver.domain.clock import Clock
from chatserver.errors import BadRequest, ConfigError, Unavailable
from chatserver.features.push.model import Notice, Subscription, encode_payload
from chatserver.features.push.providers.interface import (
    TIMEOUT_S,
    TTL_S,
    PushOutcome,
    SendResult,
    classify,
    classify_failure,
)
from chatserver.features.push.settings import Notify
from chatserver.outbound.http2_client import Http2, parse_origin
from chatserver.outbound.http_client import Answer
from chatserver.telemetry.metrics import PUSH_REFUSALS

log = structlog.get_logger()

SOUND = "default"  # sound of a push; an empty name makes it silent

PAYLOAD_BYTES_MAX: Final = 4_096
ANSWER_BYTES_MAX: Final = 4_096
RENEW_S: Final = 2_400.0  # age at which a token is renewed; Apple requires 20 to 60 minutes
FORCED_RENEWAL_INTERVAL_S: Final = (
    1_200.0  # minimum interval between replacements of expired tokens
)
WARN_INTERVAL_S: Final = 60.0
WITHOUT_PREVIEW: Final = "New message"

GONE: Final = frozenset({"BadDeviceToken", "Unregistered", "ExpiredToken"})
# Reasons with their own metric label; all others are counted as "other".
REASONS: Final = GONE | {
    "BadCollapseId",
    "BadEnvironmentKeyIdInToken",
    "BadExpirationDate",
    "BadPath",
    "BadPriority",
    "BadTopic",
    "DeviceTokenNotForTopic",
    "ExpiredProviderToken",
    "Forbidden",
    "InternalServerError",
    "InvalidProviderToken",
    "InvalidPushType",
    "MissingProviderToken",
    "PayloadTooLarge",
    "ServiceUnavailable",
    "Shutdown",
    "TooManyProviderTokenUpdates",
    "TooManyRequests",
    "TopicDisallowed",
    "UnrelatedKeyIdInToken",
}

_ID = re.compile(r"[A-Z0-9]{10}")
_TOPIC = re.compile(r"[A-Za-z0-9.-]{1,255}")


def is_apns_configured(settings: Notify) -> bool:
    """Return whether any APNs setting is present."""
    return bool(
        settings.apns_key.get_secret_value()
        or settings.apns_key_id
        or settings.apns_team_id
        or settings.apns_topic
    )


def check_apns(settings: Notify) -> None:
    """Check the APNs settings, if any of them is present.

    Raises:
        ConfigError: lists all problems, without the key.
    """
    if not is_apns_configured(settings):
        return
    problems = []
    text = settings.apns_key.get_secret_value()
    if not text:
        problems.append("notify.apns_key: is missing, but other APNs settings are set")
    else:
        try:
            load_apns_key(text)
        except ValueError:
            problems.append("notify.apns_key: is not the content of a .p8 key file (EC, P-256)")
    for name, value in (
        ("apns_key_id", settings.apns_key_id),
        ("apns_team_id", settings.apns_team_id),
    ):
        if not value:
            problems.append(f"notify.{name}: is missing, but other APNs settings are set")
        elif _ID.fullmatch(value) is None:
            problems.append(f"notify.{name}: must be 10 uppercase letters and digits")
    if not settings.apns_topic:
        problems.append("notify.apns_topic: is missing; set it to the bundle id of the application")
    elif _TOPIC.fullmatch(settings.apns_topic) is None:
        problems.append("notify.apns_topic: must be a bundle id, for example com.example.chat")
    try:
        parse_origin(settings.apns_url)
    except BadRequest as exc:
        problems.append(f"notify.apns_url: {exc.message}")
    if problems:
        raise ConfigError(*problems)


def load_apns_key(text: str) -> ec.EllipticCurvePrivateKey:
    r"""Parse the content of a .p8 key file; line breaks can be written as ``\n``.

    Raises:
        ValueError: the text is not an unencrypted P-256 key.
    """
    try:
        key = load_pem_private_key(text.replace("\\n", "\n").encode(), password=None)
    except TypeError as exc:  # the key is encrypted
        raise ValueError("the key is encrypted") from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError("not a P-256 key")
    return key


@attrs.define(eq=False, repr=False, kw_only=True)
class ProviderToken:
    """Provider token, which authenticates this server to Apple; renewed every `RENEW_S`."""

    _key: ec.EllipticCurvePrivateKey
    _key_id: str
    _team_id: str
    _clock: Clock
    _token: str = attrs.field(default="", init=False)
    _made_at: float = attrs.field(default=0.0, init=False)
    _forced_at: float | None = attrs.field(default=None, init=False)

    def get(self) -> str:
        """Return the token; sign a new one if it is older than `RENEW_S`."""
        now = self._clock.time()
        if not self._token or not 0 <= now - self._made_at < RENEW_S:
            claims = {"iss": self._team_id, "iat": int(now)}
            self._token = jwt.encode(claims, self._key, "ES256", headers={"kid": self._key_id})
            self._made_at = now
        return self._token

    def expire(self, token: str) -> None:
        """Discard a token that Apple reports as expired, so that the next push uses a new token.

        Tokens are discarded at most once per `FORCED_RENEWAL_INTERVAL_S`. Otherwise, a server with
        a wrong clock would sign a new token for every push.
        """
        now = self._clock.monotonic()
        if token != self._token:
            return
        if self._forced_at is None or now - self._forced_at >= FORCED_RENEWAL_INTERVAL_S:
            self._forced_at = now
            self._token = ""


class Apns:
    """`Provider` for applications on Apple systems."""

    def __init__(self, server: Http2, settings: Notify, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._token = ProviderToken(
            key=load_apns_key(settings.apns_key.get_secret_value()),
            key_id=settings.apns_key_id,
            team_id=settings.apns_team_id,
            clock=clock,
        )
        self._host = parse_origin(settings.apns_url).authority
        self._topic = settings.apns_topic
        self._warned: dict[str, float] = {}

    def get_host(self, subscription: Subscription) -> str:
        return self._host

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        """Send a notice; see `Provider`."""
        token = self._token.get()
        # If `apns-expiration` is 0, Apple drops the push when the device is offline.
        expires = int(self._clock.time()) + TTL_S if TTL_S else 0
        headers = {
            "authorization": f"bearer {token}",
            "apns-topic": self._topic,
            "apns-push-type": "alert",
            "apns-priority": "10",
            "apns-expiration": str(expires),
            "apns-collapse-id": notice.topic,
            "content-type": "application/json",
        }
        try:
            response = await self._server.post(
                f"/3/device/{subscription.target}",
                body=self.build_payload(notice),
                headers=headers,
                timeout_s=TIMEOUT_S,
                response_bytes_max=ANSWER_BYTES_MAX,
            )
        except (BadRequest, Unavailable) as exc:
            return classify_failure(exc)
        return self._classify(response, token)

    def build_payload(self, notice: Notice) -> bytes:
        """Return a notice's payload as JSON of at most `PAYLOAD_BYTES_MAX` bytes."""
        aps: dict[str, Any] = {
            "alert": {"title": notice.headline, "body": notice.preview or WITHOUT_PREVIEW},
            "thread-id": notice.chat,
        }
        if notice.badge is not None:
            aps["badge"] = notice.badge
        if SOUND:
            aps["sound"] = SOUND
        fields = {
            "aps": aps,
            "v": 1,
            "chat": notice.chat,
            "seq": notice.seq,
            "ts": notice.ts,
            "sender": notice.sender,
            "unread": notice.unread,
        }
        return encode_payload(fields, PAYLOAD_BYTES_MAX)

    def _classify(self, response: Answer, token: str) -> SendResult:
        if response.is_ok:
            return SendResult(PushOutcome.SENT)
        reason, at_ms = _read(response)
        label = reason if reason in REASONS else "other"
        PUSH_REFUSALS.labels("apns", label).inc()
        detail = f"status {response.status} {label}"
        if reason in GONE or response.status == 410:
            return SendResult(PushOutcome.GONE, reason=detail, gone_ms=at_ms)
        if reason == "ExpiredProviderToken":
            self._token.expire(token)
            return SendResult(
                PushOutcome.DOWN, reason=detail
            )  # a retry with a new token may succeed
        result = classify(response)
        if result.outcome is PushOutcome.GONE:
            # Apple does not know the path or topic. The device may be valid: keep the subscription.
            result = SendResult(PushOutcome.REFUSED)
        if result.outcome is PushOutcome.REFUSED:
            self._warn(label, response.status)
        is_device_only = reason == "TooManyRequests"
        return SendResult(
            result.outcome, result.retry_after_s, detail, is_device_only=is_device_only
        )

    def _warn(self, reason: str, status: int) -> None:
        """Log a problem that the operator must fix, once per `WARN_INTERVAL_S` for each reason."""
        now = self._clock.monotonic()
        if now - self._warned.get(reason, -WARN_INTERVAL_S) >= WARN_INTERVAL_S:
            self._warned[reason] = now
            log.warning("push.apns_refused", reason=reason, status=status, topic=self._topic)


def _read(response: Answer) -> tuple[str, int | None]:
    """Return `(reason, ms)`: the error reason, and the time when the device was unregistered."""
    try:
        fields = json.loads(response.body)
    except (ValueError, RecursionError):
        return "", None
    if not isinstance(fields, dict) or not isinstance(reason := fields.get("reason"), str):
        return "", None
    at_ms = fields.get("timestamp")
    is_time = isinstance(at_ms, int) and not isinstance(at_ms, bool) and 0 < at_ms < 2**53
    return reason, at_ms if is_time else None
