"""S3 client: deadlines, a single retry layer, error translation and signed URLs.

The SDK's own retries are off. `translate` maps every botocore exception to `chatserver.errors`, so
no SDK exception leaves the package. Any call may run twice; all our calls are idempotent. If a
tenant is set, ``<tenant>/`` is prepended to object keys in requests, and removed in responses.

`sign_upload` and `sign_link` create URLs for clients, at `cold.public_endpoint` if it is set.
Signing needs no connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import stamina
from aiobotocore.config import AioConfig
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
)

from chatserver.aws_errors import translate_no_response
from chatserver.aws_session import create_session
from chatserver.config import Cold
from chatserver.domain.access.tenants import WriteFence
from chatserver.errors import (
    S3_DOWN,
    ChatError,
    ConfigError,
    Conflict,
    CorruptData,
    NotFound,
    TooLarge,
    Unavailable,
)

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

CONNECTIONS_MAX = 32  # maximum connections to S3 per process
ATTEMPTS_MAX = 4  # maximum attempts per call, with jittered backoff

T = TypeVar("T")

CONNECT_TIMEOUT_S = 2.0
RETRY_WAIT_S = 0.05  # pause before the second attempt; doubles with each further attempt
RETRY_JITTER_S = 0.1
RETRY_WAIT_S_MAX = 2.0

_TEMPORARY = {
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
}
_MISSING = {"404", "NoSuchKey", "NotFound"}
_REJECTED = {
    "403",
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
}


class BucketMissing(ConfigError):
    """The bucket does not exist."""

    public = "the S3 bucket is missing; run `chatserver tables apply`"


class ObjectMissing(NotFound):
    """The object does not exist."""


class _Clients(NamedTuple):
    sdk: S3Client
    signer: S3Client  # creates signed URLs for clients


class ObjectStore:
    """S3 client for one bucket. A call returns the response or raises a `ChatError`."""

    def __init__(self, settings: Cold, stack: contextlib.AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._clients: _Clients | None = None
        self._opening = asyncio.Lock()
        self.fence = WriteFence()
        self.bucket = settings.bucket
        self.prefix = f"{settings.tenant}/" if settings.tenant else ""
        self.endpoint = settings.endpoint or "AWS"

    async def _open(self) -> _Clients:
        """Return the SDK clients; create them on first use. Every call to S3 begins here."""
        if self.fence.reason:
            raise Unavailable(self.fence.reason)
        async with self._opening:
            if self._clients is None:
                try:
                    self._clients = await _open_clients(self._settings, self._stack)
                except BotoCoreError as exc:
                    raise translate(exc, self.endpoint) from exc
            return self._clients

    async def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call one operation on the bucket by its SDK name, with retries.

        Guarantees:
            Bounded: `ATTEMPTS_MAX` attempts with jittered backoff, within `call_timeout_s` in
            total.
            A write may run twice, and may have run if this raises `Unavailable`.

        Raises:
            ObjectMissing: the object does not exist.
            Conflict: a precondition on the object failed.
            Unavailable: S3 did not respond or returned a temporary error.
            ConfigError: the bucket does not exist or access is denied.
        """

        sent = self._add_prefix(request) if self.prefix else request
        if self.prefix and operation.startswith("list_"):
            sent.setdefault("Prefix", self.prefix)

        async def attempt() -> dict[str, Any]:
            sdk = (await self._open()).sdk
            response: dict[str, Any] = await getattr(sdk, operation)(Bucket=self.bucket, **sent)
            return self._remove_prefix(response) if self.prefix else response

        return await self._retry(attempt)

    def _add_prefix(self, request: dict[str, Any]) -> dict[str, Any]:
        placed = dict(request)
        for name in ("Key", "Prefix", "StartAfter", "KeyMarker"):
            if name in request:
                placed[name] = self.prefix + request[name]
        if "CopySource" in request:
            source = request["CopySource"]
            placed["CopySource"] = {**source, "Key": self.prefix + source["Key"]}
        if "Delete" in request:
            objects = request["Delete"]["Objects"]
            placed["Delete"] = {
                **request["Delete"],
                "Objects": [{**entry, "Key": self.prefix + entry["Key"]} for entry in objects],
            }
        return placed

    def _remove_prefix(self, response: dict[str, Any]) -> dict[str, Any]:
        own = dict(response)
        for name in ("Contents", "DeleteMarkers", "Uploads", "Versions"):
            if name in response:
                own[name] = [
                    {**entry, "Key": entry["Key"].removeprefix(self.prefix)}
                    for entry in response[name]
                ]
        return own

    async def read(self, key: str, *, size_max: int, part: str | None = None) -> bytes:
        """Return an object's content, or only its byte range `part` (such as ``bytes=0-9``).

        Raises:
            TooLarge: the content has more than `size_max` bytes. Also raises the errors of `call`.
        """
        options: Any = {} if part is None else {"Range": part}

        async def attempt() -> bytes:
            sdk = (await self._open()).sdk
            response = await sdk.get_object(Bucket=self.bucket, Key=self.prefix + key, **options)
            async with response["Body"] as body:
                if response["ContentLength"] > size_max:
                    raise TooLarge(f"object: larger than {size_max} bytes")
                content: bytes = await body.read()
            return content

        return await self._retry(attempt)

    async def iter_content(self, key: str, *, chunk_bytes: int = 65_536) -> AsyncGenerator[bytes]:
        """Yield an object in chunks. Each chunk has the timeout `call_timeout_s`."""
        timeout_s = self._settings.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                sdk = (await self._open()).sdk
                response = await sdk.get_object(Bucket=self.bucket, Key=self.prefix + key)
            async with response["Body"] as body:
                while True:
                    async with asyncio.timeout(timeout_s):
                        piece = await body.content.read(chunk_bytes)
                    if not piece:
                        return
                    yield piece
        except (BotoCoreError, ClientError, aiohttp.ClientError, OSError) as exc:
            raise translate(exc, self.endpoint) from exc

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        timeout_s = self._settings.call_timeout_s
        last: Unavailable | None = None
        try:
            async with asyncio.timeout(timeout_s):
                async for trial in stamina.retry_context(
                    on=Unavailable,
                    attempts=ATTEMPTS_MAX,
                    timeout=None,
                    wait_initial=RETRY_WAIT_S,
                    wait_jitter=RETRY_JITTER_S,
                    wait_max=RETRY_WAIT_S_MAX,
                ):
                    with trial:
                        try:
                            return await attempt()
                        except (BotoCoreError, ClientError, aiohttp.ClientError, OSError) as exc:
                            error = translate(exc, self.endpoint)
                            last = error if isinstance(error, Unavailable) else last
                            raise error from exc
        except TimeoutError as exc:
            reason = f"; last error: {last.message}" if last else ""
            raise Unavailable(
                f"S3 at {self.endpoint}: timed out after {timeout_s:g} s{reason}", public=S3_DOWN
            ) from (last or exc)
        raise AssertionError("the retry loop ended without a result")

    # Signed URLs for clients.

    async def sign_upload(
        self, key: str, fields: dict[str, str], size: int, lifetime_s: int
    ) -> tuple[str, dict[str, str]]:
        """Return `(url, fields)`: the URL and the form fields with which a client can upload.

        S3 rejects an upload with a different key, size or `fields`.
        """
        conditions: list[Any] = [{name: value} for name, value in fields.items()]
        conditions.append(["content-length-range", size, size])
        try:
            signer = (await self._open()).signer
            form: dict[str, Any] = await signer.generate_presigned_post(
                self.bucket,
                self.prefix + key,
                Fields=dict(fields),
                Conditions=conditions,
                ExpiresIn=lifetime_s,
            )
        except BotoCoreError as exc:
            raise translate(exc, self.endpoint) from exc
        return form["url"], form["fields"]

    async def sign_link(self, key: str, headers: dict[str, str], lifetime_s: int) -> str:
        """Return a signed URL for reading an object; S3 sets `headers` in the response."""
        names = {
            "content-type": "ResponseContentType",
            "content-disposition": "ResponseContentDisposition",
            "cache-control": "ResponseCacheControl",
        }
        parameters = {"Bucket": self.bucket, "Key": self.prefix + key}
        parameters |= {names[name]: value for name, value in headers.items()}
        try:
            signer = (await self._open()).signer
            url: str = await signer.generate_presigned_url(
                "get_object", Params=parameters, ExpiresIn=lifetime_s
            )
        except BotoCoreError as exc:
            raise translate(exc, self.endpoint) from exc
        return url


@contextlib.asynccontextmanager
async def open_s3(settings: Cold) -> AsyncIterator[ObjectStore]:
    """Create an S3 client, which connects on its first call.

    Raises:
        ConfigError: an endpoint is not a URL, or only one of access key and secret key is set.
    """
    if (settings.access_key is None) != (settings.secret_key is None):
        raise ConfigError("cold.access_key, cold.secret_key: set both or neither")
    for name in ("endpoint", "public_endpoint"):
        parts = urlsplit(getattr(settings, name) or "https://aws")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"cold.{name} (CHAT_COLD_{name.upper()}): must be an HTTP address")
    stamina.instrumentation.set_on_retry_hooks([])
    async with contextlib.AsyncExitStack() as stack:
        yield ObjectStore(settings, stack)


async def _open_clients(settings: Cold, stack: contextlib.AsyncExitStack) -> _Clients:
    config = AioConfig(
        connect_timeout=min(CONNECT_TIMEOUT_S, settings.call_timeout_s),
        read_timeout=settings.call_timeout_s / 2,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": 1},
        signature_version="s3v4",
        # Other servers than AWS seldom have the DNS name per bucket that virtual hosting needs.
        s3={"addressing_style": "path" if settings.endpoint else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    session = create_session(settings.access_key, settings.secret_key, settings.region)
    # Without this check, signing without credentials fails with a generic error.
    credentials = await session.get_credentials()  # type: ignore[misc]  # a coroutine; the stub is wrong
    if credentials is None:
        raise NoCredentialsError
    sdk = await stack.enter_async_context(
        session.client("s3", endpoint_url=settings.endpoint, config=config)
    )
    if settings.public_endpoint is None:
        return _Clients(sdk, sdk)
    public = session.client("s3", endpoint_url=settings.public_endpoint, config=config)
    return _Clients(sdk, await stack.enter_async_context(public))


def translate(exc: Exception, endpoint: str) -> ChatError:
    """Return the `ChatError` for an SDK exception."""
    endpoint_name = f"S3 at {endpoint}"
    if isinstance(exc, ClientError):
        return _translate_response(exc, endpoint_name)
    return translate_no_response(exc, endpoint_name, "cold", public=S3_DOWN)


def _translate_response(exc: ClientError, server: str) -> ChatError:
    response: dict[str, Any] = {**exc.response}
    error = response.get("Error", {})
    code = str(error.get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{server}: {exc.operation_name}: {code}: {error.get('Message', '')}"
    if code in _TEMPORARY or status >= 500:
        return Unavailable(text, public=S3_DOWN)
    if code == "NoSuchBucket":
        return BucketMissing(f"{text}; run `chatserver tables apply` to create the bucket")
    if code in _MISSING:
        return ObjectMissing(text)
    if code in {"412", "PreconditionFailed", "ConditionalRequestConflict"}:
        return Conflict(text)
    if code in _REJECTED:
        return ConfigError(text)
    return CorruptData(text)
