"""DynamoDB item operations over pooled HTTP connections.

The SDK builds requests and parses responses according to its service model, which takes two to
three times as much CPU as a request here (`docs/performance.md`). Our requests already have the
structure of DynamoDB's JSON, so they are encoded as they are, and signed with the SDK's
credentials. Binary attributes in responses are base64 text.

Operations on tables, and DynamoDB Streams, use the SDK.
"""

from __future__ import annotations

import contextlib
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
import msgspec
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.httpsession import get_cert_path
from yarl import URL

from chatserver.errors import DYNAMODB_DOWN, Unavailable
from chatserver.warm.dynamo.request_signing import RequestSigner

if TYPE_CHECKING:
    import ssl

    import aioboto3
    from aiobotocore.credentials import AioCredentials

ITEM_OPERATIONS: Final = {
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
    "delete_item": "DeleteItem",
    "get_item": "GetItem",
    "put_item": "PutItem",
    "query": "Query",
    "scan": "Scan",
    "transact_get_items": "TransactGetItems",
    "transact_write_items": "TransactWriteItems",
    "update_item": "UpdateItem",
}
KEEPALIVE_S: Final = 12.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class HttpTransport:
    """Sends signed requests to one endpoint. Returns responses in the format of the SDK."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        credentials: AioCredentials | None,
        endpoint: str,
        region: str,
    ) -> None:
        self._http = http
        self._credentials = credentials  # the SDK's object, which refreshes the credentials
        self._text_url = endpoint.rstrip("/") + "/"
        self._url = URL(self._text_url)
        self._signer = RequestSigner(self._text_url, region)
        self._targets = {
            operation: f"DynamoDB_20120810.{name}" for operation, name in ITEM_OPERATIONS.items()
        }

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call one of `ITEM_OPERATIONS`, without retries.

        Raises:
            ClientError: DynamoDB responded with an error.
            NoCredentialsError: there are no credentials.
            aiohttp.ClientError, OSError: there was no response.
            Unavailable: the response is damaged or not from DynamoDB.
        """
        status, metadata, payload = await self._exchange(operation, _encode(request))
        if status != 200:
            raise _to_client_error(ITEM_OPERATIONS[operation], status, payload)
        checksum = metadata.get("x-amz-crc32")
        try:
            if checksum is not None and int(checksum) != zlib.crc32(payload):
                raise Unavailable(
                    f"DynamoDB at {self._text_url}: the response has a wrong checksum",
                    public=DYNAMODB_DOWN,
                )
            response: dict[str, Any] = _decode(payload)
        except ValueError as exc:  # raised by `int` or the decoder
            raise Unavailable(
                f"DynamoDB at {self._text_url}: the response is malformed", public=DYNAMODB_DOWN
            ) from exc
        request_id = metadata.get("x-amzn-requestid")
        response["ResponseMetadata"] = {} if request_id is None else {"RequestId": request_id}
        return response

    async def _exchange(self, operation: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if self._credentials is None:
            raise NoCredentialsError
        credentials = await self._credentials.get_frozen_credentials()
        headers = self._signer.sign(credentials, self._targets[operation], body, time.time())
        async with self._http.post(
            self._url, data=body, headers=headers, allow_redirects=False
        ) as response:
            return response.status, response.headers, await response.read()


def _to_client_error(name: str, status: int, payload: bytes) -> ClientError:
    try:
        decoded = _decode(payload)
    except ValueError:
        decoded = None
    aws_response: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    code = str(aws_response.get("__type", status)).rpartition("#")[2]
    message = aws_response.get("message") or aws_response.get("Message") or ""
    response: dict[str, Any] = {
        **aws_response,
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    # The type stubs lack the fields that only DynamoDB has: `Item`, `CancellationReasons`.
    return ClientError(cast(Any, response), name)


def find_proxy(endpoint: str) -> str | None:
    """Return the proxy that the environment variables set for an endpoint, as the SDK does."""
    url = URL(endpoint)
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


@contextlib.asynccontextmanager
async def open_http_transport(
    session: aioboto3.Session,
    endpoint: str,
    region: str,
    *,
    connections_max: int,
    connect_timeout_s: float,
    read_timeout_s: float,
) -> AsyncIterator[HttpTransport]:
    """Open a connection pool with the SDK session's credentials. It connects on the first call."""
    core = session._session  # aioboto3 has no public API for its session's settings
    tls: ssl.SSLContext | bool = True
    if endpoint.startswith("https:"):
        import ssl

        tls = ssl.create_default_context(
            cafile=get_cert_path(core.get_config_variable("ca_bundle") or True)
        )
    connector = aiohttp.TCPConnector(limit=connections_max, keepalive_timeout=KEEPALIVE_S, ssl=tls)
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=connect_timeout_s, sock_read=read_timeout_s
    )
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=find_proxy(endpoint),
    ) as http:
        yield HttpTransport(http, await core.get_credentials(), endpoint, region)
