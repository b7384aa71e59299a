"""Web Push test service, and simulated browsers subscribed to it.

It accepts the same requests as a real service and returns the replies set by a test. A browser has
real keys and processes pushes like a real one: it verifies the signature and decrypts the body.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import http_ece  # type: ignore[import-untyped]  # no type information
import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from chatserver.domain.ids import UserId
from chatserver.features.push.model import Subscription, subscription_id
from chatserver.features.push.providers.vapid import make_vapid_pair
from tests.support.servers.processes import eventually

HOST = "127.0.0.1"


def base64url(raw: bytes) -> str:
    """Encode bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclasses.dataclass
class Taken:
    """A request that the service received."""

    path: str
    headers: dict[str, str]
    body: bytes
    t: float = dataclasses.field(default_factory=time.monotonic)


@dataclasses.dataclass
class Reply:
    """A reply, how often to return it (None: forever), and its delay."""

    status: int
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: str = ""
    times: int | None = None
    gate: asyncio.Event | None = None


class Browser:
    """A browser with a subscription."""

    def __init__(self, service: PushService, name: str) -> None:
        self.service = service
        self.path = f"/push/{name}"
        self.endpoint = f"{service.url}{self.path}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._secret = os.urandom(16)
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.keys = {"p256dh": base64url(point), "auth": base64url(self._secret)}

    def subscription_of(self, user: str, device: str | None = None) -> Subscription:
        """Return the stored form of the user's registration of this browser."""
        return Subscription(
            subscription_id("web", self.endpoint),
            UserId(user),
            "web",
            self.endpoint,
            self.keys["p256dh"],
            self.keys["auth"],
            device,
        )

    @property
    def taken(self) -> list[Taken]:
        """The requests for this browser, including refused ones."""
        return [one for one in self.service.taken if one.path == self.path]

    def read(self, taken: Taken) -> dict[str, Any]:
        """Verify and decrypt a push; return its notice."""
        self.service.check_signature(taken)
        plain = http_ece.decrypt(
            taken.body, private_key=self._key, auth_secret=self._secret, version="aes128gcm"
        )
        notice: dict[str, Any] = json.loads(plain)
        return notice

    def notices(self) -> list[dict[str, Any]]:
        """Return all received notices."""
        return [self.read(one) for one in self.taken]

    async def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait for `count` pushes; return their notices."""
        await eventually(lambda: len(self.taken) >= count, what=f"{count} pushes")
        return self.notices()


class PushService:
    """A push service on loopback; see `open_push_service`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self.vapid_private, self.vapid_public = make_vapid_pair()
        self.taken: list[Taken] = []
        self.replies: dict[str, list[Reply]] = {}
        self._names = itertools.count(1)

    def settings(self) -> dict[str, Any]:
        """Return the settings section `notify` of a worker that sends here without delays."""
        return {
            "vapid_private": self.vapid_private,
            "vapid_public": self.vapid_public,
            "subject": "mailto:ops@chat.example",
            "delay_s": 0.05,
        }

    def new_browser(self) -> Browser:
        """Return a new browser."""
        return Browser(self, f"b{next(self._names)}")

    def set_replies(self, path: str, *replies: Reply) -> None:
        """Set the replies to requests for a path, in order; afterwards the reply is 201."""
        self.replies[path] = list(replies)

    def check_signature(self, taken: Taken) -> None:
        """Check that a request is signed as in RFC 8292, for this service and with our key."""
        scheme, _, rest = taken.headers["authorization"].partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert scheme == "vapid"
        assert fields["k"] == self.vapid_public
        raw = base64.urlsafe_b64decode(fields["k"] + "=")
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
        claims = jwt.decode(fields["t"], key, ["ES256"], audience=self.url)
        assert claims["sub"] == "mailto:ops@chat.example"

    async def record(self, request: web.Request) -> web.Response:
        """Record a request and return its reply."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.taken.append(Taken(request.path, headers, await request.read()))
        replies = self.replies.get(request.path) or []
        if not replies:
            return web.Response(status=201)
        reply = replies[0]
        if reply.times is not None:
            reply.times -= 1
            if reply.times == 0:
                replies.pop(0)
        if reply.gate is not None:
            await reply.gate.wait()
        return web.Response(status=reply.status, headers=reply.headers, text=reply.body)


@contextlib.asynccontextmanager
async def open_push_service() -> AsyncIterator[PushService]:
    """Serve until the block ends."""
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    made: list[PushService] = []

    async def handle(request: web.Request) -> web.Response:
        return await made[0].record(request)

    app.router.add_route("*", "/{path:.*}", handle)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    made.append(PushService(runner.addresses[0][1]))
    try:
        yield made[0]
    finally:
        for replies in made[0].replies.values():
            for reply in replies:
                if reply.gate is not None:
                    reply.gate.set()
        await runner.cleanup()
