"""Amazon Bedrock models, through the Converse API that all of them share.

The response is an AWS event stream. Its last message has the token usage.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError

from chatserver.aws_errors import translate_silence
from chatserver.config import Companions
from chatserver.errors import ChatError, ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.interface import Ask, Delta, End, Finish

CONNECT_TIMEOUT_S = 5.0

_ENDS: dict[str, End] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "refused",
    "guardrail_intervened": "refused",
}
_THROTTLED = {"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"}
_PASSING = {
    "InternalServerException",
    "ModelErrorException",
    "ModelNotReadyException",
    "ModelStreamErrorException",
    "ModelTimeoutException",
    "ServiceUnavailableException",
}


class Bedrock:
    """Provider `bedrock`."""

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk
        self._where = f"Bedrock at {sdk.meta.endpoint_url}"

    async def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
        """See `Provider.stream`."""
        end: End | None = None
        usage: dict[str, int] | None = None
        request: dict[str, Any] = {
            "modelId": ask.model,
            "messages": [
                {"role": said.role, "content": [{"text": said.text}]} for said in ask.messages
            ],
            "inferenceConfig": {"maxTokens": ask.answer_tokens_max},
        }
        if ask.system:
            request["system"] = [{"text": ask.system}]
        try:
            answer = await self._sdk.converse_stream(**request)
            with contextlib.closing(answer["stream"]) as events:
                async for event in events:
                    if text := event.get("contentBlockDelta", {}).get("delta", {}).get("text"):
                        yield Delta(text)
                    elif "messageStop" in event:
                        end = _ENDS.get(event["messageStop"]["stopReason"], "done")
                    elif "metadata" in event:
                        usage = event["metadata"].get("usage")
        except (BotoCoreError, ClientError, ParserError, aiohttp.ClientError, OSError) as exc:
            raise translate(exc, self._where) from exc
        if end is None:
            raise Unavailable(f"{self._where}: the stream was interrupted")
        if usage is None:
            yield Finish(end)
        else:
            yield Finish(end, usage["inputTokens"], usage["outputTokens"])


@contextlib.asynccontextmanager
async def open_bedrock(settings: Companions) -> AsyncIterator[Bedrock]:
    """Open a connection pool for Bedrock; it connects on the first call.

    Raises:
        ConfigError: the endpoint is not a URL.
    """
    config = AioConfig(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=settings.response_timeout_s,
        max_pool_connections=settings.responses_max,
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    session = aioboto3.Session(region_name=settings.bedrock_region)
    async with contextlib.AsyncExitStack() as stack:
        try:
            sdk = await stack.enter_async_context(
                session.client(
                    "bedrock-runtime", endpoint_url=settings.bedrock_endpoint, config=config
                )
            )
        except ValueError as exc:
            raise ConfigError([f"companions.bedrock_endpoint: {exc}"]) from exc
        yield Bedrock(sdk)


def translate(exc: Exception, where: str) -> ChatError:
    """Map an SDK exception to an error of this server."""
    if not isinstance(exc, ClientError):
        if isinstance(exc, ParserError):
            return Unavailable(f"{where}: the stream is damaged: {exc}")
        return translate_silence(exc, where, "assistant")
    error: dict[str, Any] = {**exc.response.get("Error", {})}
    code = str(error.get("Code", ""))
    code = code[:1].upper() + code[1:]  # error codes in events start with a lowercase letter
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{where}: {code}: {error.get('Message', '')}"[:500]
    if code in _THROTTLED or status == 429:
        return Overloaded(text)
    if code in _PASSING or status >= 500:
        return Unavailable(text)
    return ConfigError([text])
