"""Headers common to all responses, and the response counter."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from chatserver.api.request_framing import RequestFramingCheck
from chatserver.config import Api
from chatserver.domain.client_addresses import is_in, parse_networks
from chatserver.telemetry.metrics import HTTP_REQUESTS

TRUSTED_TYPES = "tierchat-worker"  # name of the Trusted Types policy that clients/web creates


def build_content_security_policy(gateway_url: str, files_urls: Sequence[str] = ()) -> str:
    """Return a policy that allows this server's files, one WebSocket URL and the file storage.

    `files_urls`: S3 URLs for file uploads, thumbnails, audio and video.

    Inline code is blocked, so injected markup cannot run scripts. Framing, plugins and forms to
    other sites are blocked, too.
    """
    gateway, files = (
        _parse_origin(gateway_url),
        "".join(f" {_parse_origin(url)}" for url in files_urls),
    )
    rules = {
        "default-src": "'self'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": f"'self' data: blob:{files}",
        "media-src": f"'self' blob:{files}",
        "connect-src": f"'self' {gateway}{files}",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": TRUSTED_TYPES,
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _parse_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class CommonHeaders:
    """ASGI middleware that adds security headers and counts responses by route and status.

    Requests with conflicting framing headers do not reach the application. HSTS (RFC 6797) is sent
    only over HTTPS: on a site without TLS, it would lock browsers out.
    """

    def __init__(self, app: ASGIApp, settings: Api, files_urls: Sequence[str] = ()) -> None:
        self._app = RequestFramingCheck(app)
        self._settings = settings
        self._trusted = parse_networks(settings.trusted_proxies)
        self._hsts = (b"strict-transport-security", b"max-age=%d" % settings.hsts_s)
        policy = build_content_security_policy(settings.gateway_url, files_urls)
        self._headers = [
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"content-security-policy", policy.encode()),
            # Allow the microphone, because the web client records voice messages.
            (b"permissions-policy", b"camera=(), geolocation=(), microphone=(self)"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                if self._is_tls(scope):
                    headers.append(self._hsts)
                message["headers"] = headers + self._headers
                # Count by route pattern, because the number of different paths is unlimited.
                route = str(scope.get("path_template") or "none")
                HTTP_REQUESTS.labels(route, str(message["status"])).inc()
            await send(message)

        is_http = scope["type"] == ScopeType.HTTP
        await self._app(scope, receive, send_with_headers if is_http else send)

    def _is_tls(self, scope: Scope) -> bool:
        if not self._settings.hsts_s:
            return False
        if self._settings.tls_in_front:
            return True
        client = scope.get("client")
        if client is None or not is_in(client[0], self._trusted):
            return False
        protos = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        return bool(protos) and protos[0].split(b",")[0].strip().lower() == b"https"
