"""HTTP routes for push subscriptions."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.authorization import USER, Actor, Caller
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.features.push.container import PushContainer
from chatserver.features.push.model import (
    Kind,
    Subscription,
    parse_apns_token,
    parse_token,
    subscription_id,
)
from chatserver.features.push.settings import Notify
from chatserver.features.push.webpush_validation import check_endpoint, check_keys
from chatserver.outbound.allowed_destinations import Destinations


class PushKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encryption keys of a browser, from `PushSubscription.toJSON()`."""

    p256dh: str
    auth: str


class NewPushSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A browser (`endpoint` and `keys`) or an application (`token`).

    For a browser, send the result of `PushSubscription.toJSON()`; `expirationTime` is ignored. For
    an application, `kind` is the push service: `fcm` (default) or `apns` (hexadecimal token).
    """

    endpoint: str | None = None
    keys: PushKeys | None = None
    token: str | None = None
    kind: Kind | None = None
    expirationTime: float | None = None  # noqa: N815  # named by the browser


class PushDevice(msgspec.Struct, frozen=True):
    """A device that receives pushes.

    `service` is the host of the push service for a browser; otherwise it equals `kind`.
    """

    id: str
    kind: Kind
    service: str
    created: int


def build_push_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    outbound = container.settings.outbound
    allowed = Destinations(outbound.allow_private, outbound.ports)
    has_web_push = bool(container.settings.get(Notify).vapid_public)

    @post("/v1/me/push-subscriptions", opt={"rule": USER, "creates": True})
    async def subscribe(
        data: JSONBody[NewPushSubscription], actor: Actor, principal: Caller
    ) -> PushDevice:
        """Register a browser or application for pushes. Idempotent."""
        subscription = _parse(data, actor, principal.device, allowed)
        if subscription.kind == "web" and not has_web_push:
            raise BadRequest("endpoint: browser pushes are not configured on this server")
        now = container.clock.time()
        await container.get(PushContainer).state.record_devices(actor)
        await container.get(PushContainer).subscriptions.put(subscription, now)
        return _describe(subscription, int(now * 1000))

    @get("/v1/me/push-subscriptions", opt={"rule": USER})
    async def list_subscriptions(actor: Actor, page: PageOf) -> Page[PushDevice]:
        """List the caller's devices that receive pushes, oldest first."""
        subscriptions = container.get(PushContainer).subscriptions
        return page.slice(
            await subscriptions.list_for_user(actor, container.clock.time()),
            lambda subscription: (subscription.created_ms, subscription.id),
            lambda subscription: _describe(subscription, subscription.created_ms),
        )

    @delete("/v1/me/push-subscriptions/{subscription:str}", opt={"rule": USER})
    async def unsubscribe(subscription: PathId, actor: Actor) -> None:
        """Stop pushes to a device."""
        await container.get(PushContainer).subscriptions.remove(actor, subscription)

    return [subscribe, list_subscriptions, unsubscribe]


def _parse(
    data: NewPushSubscription, user: UserId, device: str | None, allowed: Destinations
) -> Subscription:
    if (data.endpoint is None) == (data.token is None):
        raise BadRequest("endpoint, token: exactly one of them is required")
    kind = data.kind or ("web" if data.token is None else "fcm")
    if (kind == "web") != (data.token is None):
        raise BadRequest("kind: web requires an endpoint; fcm and apns require a token")
    if data.token is not None:
        token = parse_apns_token(data.token) if kind == "apns" else parse_token(data.token)
        return Subscription(subscription_id(kind, token), user, kind, token, device=device)
    if data.endpoint is None or data.keys is None:
        raise BadRequest("keys: p256dh and auth are required for a browser")
    endpoint = check_endpoint(data.endpoint, allowed)
    p256dh, auth = check_keys(data.keys.p256dh, data.keys.auth)
    name = subscription_id("web", endpoint)
    return Subscription(
        id=name, user=user, kind="web", target=endpoint, p256dh=p256dh, auth=auth, device=device
    )


def _describe(subscription: Subscription, created_ms: int) -> PushDevice:
    is_web = subscription.kind == "web"
    service = urlsplit(subscription.target).netloc if is_web else subscription.kind
    return PushDevice(subscription.id, subscription.kind, service, created_ms)
