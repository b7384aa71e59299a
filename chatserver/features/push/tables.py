"""DynamoDB attributes of push subscriptions, in table `directory`."""

from __future__ import annotations

from typing import Final


class PushField:
    """Attributes of push subscriptions, in `directory`."""

    USER: Final = "user"  # lookup item: owner of the subscription
    KIND: Final = "kind"  # web, fcm or apns
    TARGET: Final = "target"  # browser endpoint or app token
    P256DH: Final = "p256dh"  # the browser's public key
    AUTH: Final = "auth"  # the browser's secret
    DEVICE: Final = "device"  # device that registered the subscription
    CREATED: Final = "created"  # latest registration, milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970
