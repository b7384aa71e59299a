"""Opens the clients for DynamoDB and DynamoDB Streams."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError

from chatserver.aws_session import create_session
from chatserver.config import Warm
from chatserver.errors import ConfigError
from chatserver.warm.dynamo.client import DynamoClient, translate
from chatserver.warm.dynamo.http_transport import open_http_transport
from chatserver.warm.encryption.cipher_factory import make_key_ring

CONNECTIONS_MAX: Final = 32
CONNECT_TIMEOUT_S: Final = 2.0


@contextlib.asynccontextmanager
async def open_dynamodb(settings: Warm) -> AsyncIterator[DynamoClient]:
    """Create a DynamoDB client, which connects on its first call.

    Raises:
        ConfigError: the endpoint is not a URL, or only one of access key and secret key is set.
    """
    async with contextlib.AsyncExitStack() as stack:
        opening = _open(settings, "dynamodb", settings.endpoint)
        session, sdk = await stack.enter_async_context(opening)
        transport = open_http_transport(
            session,
            sdk.meta.endpoint_url,
            sdk.meta.region_name,
            connections_max=CONNECTIONS_MAX,
            connect_timeout_s=min(CONNECT_TIMEOUT_S, settings.call_timeout_s),
            read_timeout_s=settings.call_timeout_s / 2,
        )
        client = DynamoClient(sdk, settings, await stack.enter_async_context(transport))
        yield client.with_cipher(make_key_ring(client, settings, stack))


@contextlib.asynccontextmanager
async def open_dynamodb_streams(settings: Warm) -> AsyncIterator[DynamoClient]:
    """Create a client for DynamoDB Streams, which has its own endpoint on AWS.

    Raises:
        ConfigError: the endpoint is not a URL, or only one of access key and secret key is set.
    """
    endpoint = settings.streams_endpoint or settings.endpoint
    async with _open(settings, "dynamodbstreams", endpoint) as (_, sdk):
        yield DynamoClient(sdk, settings)


@contextlib.asynccontextmanager
async def _open(
    settings: Warm, service: Literal["dynamodb", "dynamodbstreams"], endpoint: str | None
) -> AsyncIterator[tuple[aioboto3.Session, Any]]:
    if (settings.access_key is None) != (settings.secret_key is None):
        raise ConfigError("warm.access_key, warm.secret_key: set both or neither")
    config = AioConfig(
        connect_timeout=min(CONNECT_TIMEOUT_S, settings.call_timeout_s),
        # Half of the deadline, so that another attempt is possible if a response is lost.
        read_timeout=settings.call_timeout_s / 2,
        max_pool_connections=CONNECTIONS_MAX,
        retries={"total_max_attempts": 1},
        parameter_validation=False,
        tcp_keepalive=True,
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            session = create_session(settings.access_key, settings.secret_key, settings.region)
            sdk = await stack.enter_async_context(
                session.client(service, endpoint_url=endpoint, config=config)
            )
        except ValueError as exc:
            raise ConfigError(f"warm.endpoint (CHAT_WARM_ENDPOINT): {exc}") from exc
        except BotoCoreError as exc:
            raise translate(exc, endpoint or "AWS") from exc
        yield session, sdk
