"""Amazon Bedrock models, called through the Converse API.

The response is an AWS event stream. Its last event contains the token usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError

from chatserver.aws_errors import translate_no_response
from chatserver.errors import MODEL_DOWN, ChatError, ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.interface import (
    Delta,
    End,
    Finish,
    ModelMessage,
    ModelRequest,
    Piece,
    ToolCall,
)
from chatserver.features.companions.response_timeouts import RESPONSE_TIMEOUT_S
from chatserver.features.companions.settings import Companions

CONNECT_TIMEOUT_S = 5.0

_ENDS: dict[str, End] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "refused",
    "guardrail_intervened": "refused",
    "tool_use": "tools",
}
_GUARDED_IMAGES = frozenset(("image/png", "image/jpeg"))
_THROTTLED = {"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"}
_TRANSIENT = {
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
        self._server = f"Bedrock at {sdk.meta.endpoint_url}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """See `Provider.stream`."""
        end: End | None = None
        usage: dict[str, int] | None = None
        call: ToolCall | None = None
        try:
            response = await self._sdk.converse_stream(**build_request(request))
            with contextlib.closing(response["stream"]) as events:
                async for event in events:
                    if (delta := event.get("contentBlockDelta", {}).get("delta")) is not None:
                        if call is not None and "toolUse" in delta:
                            call = call.append(delta["toolUse"].get("input", ""), self._server)
                        # For a tool call or reasoning, yield an empty delta to reset the timeout.
                        yield Delta(delta.get("text", ""))
                    elif "contentBlockStart" in event:
                        if use := event["contentBlockStart"].get("start", {}).get("toolUse"):
                            call = ToolCall(use["toolUseId"], use["name"], "")
                    elif "contentBlockStop" in event:
                        if call is not None:
                            yield call
                        call = None
                    elif "messageStop" in event:
                        end = _ENDS.get(event["messageStop"]["stopReason"], "done")
                    elif "metadata" in event:
                        usage = event["metadata"].get("usage")
        except (BotoCoreError, ClientError, ParserError, aiohttp.ClientError, OSError) as exc:
            raise translate(exc, self._server) from exc
        if end is None:
            raise Unavailable(f"{self._server}: the stream was interrupted", public=MODEL_DOWN)
        if usage is None:
            yield Finish(end)
        else:
            yield Finish(end, usage["inputTokens"], usage["outputTokens"])


def build_request(request: ModelRequest) -> dict[str, Any]:
    """Return the parameters of `ConverseStream`."""
    options = request.options
    guarded = _list_guarded(request)
    sampling: dict[str, Any] = {"maxTokens": request.answer_tokens_max}
    if options.temperature is not None:
        sampling["temperature"] = options.temperature
    if options.top_p is not None:
        sampling["topP"] = options.top_p
    params: dict[str, Any] = {
        "modelId": request.model,
        "messages": [
            {
                "role": message.role,
                "content": _build_content(message, is_guarded=message in guarded),
            }
            for message in request.messages
        ],
        "inferenceConfig": sampling,
    }
    if request.system:
        params["system"] = [{"text": request.system}]
    if options.guardrail is not None:
        params["guardrailConfig"] = {
            "guardrailIdentifier": options.guardrail,
            "guardrailVersion": options.guardrail_version,
        }
    if options.tools:
        specs = [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": tool.input_schema},
            }
            for tool in options.tools
        ]
        params["toolConfig"] = {"tools": [{"toolSpec": spec} for spec in specs]}
    return params


def _list_guarded(request: ModelRequest) -> list[ModelMessage]:
    """Return the messages to mark with `guardContent`: those that the guardrail must check.

    Without marks, the guardrail checks all messages. So if a message cannot be marked, none is:
    the API cannot mark GIF and WebP images.
    """
    if request.options.guardrail is None:
        return []
    unchecked = [
        message for message in request.messages if message.role == "user" and not message.is_checked
    ]
    if any(image.type not in _GUARDED_IMAGES for each in unchecked for image in each.images):
        return []
    return unchecked


def _build_content(message: ModelMessage, *, is_guarded: bool) -> list[dict[str, Any]]:
    """Return a message's content blocks. The API rejects a blank text block, so it is left out."""
    blocks: list[dict[str, Any]] = []
    for image in message.images:
        source = {"bytes": image.content}
        block = {"image": {"format": image.type.removeprefix("image/"), "source": source}}
        blocks.append({"guardContent": block} if is_guarded else block)
    if message.text.strip():
        text = {"guardContent": {"text": {"text": message.text}}}
        blocks.append(text if is_guarded else {"text": message.text})
    for call in message.calls:
        use = {"toolUseId": call.id, "name": call.name, "input": call.parse_input() or {}}
        blocks.append({"toolUse": use})
    for result in message.results:
        status = "error" if result.is_error else "success"
        content = [{"text": result.text}]
        blocks.append(
            {"toolResult": {"toolUseId": result.id, "content": content, "status": status}}
        )
    return blocks


@functools.cache
def preload() -> aioboto3.Session:
    """Load the API description (which is slow) and return an SDK session. Thread-safe."""
    session = aioboto3.Session()
    loader = session._session.get_component("data_loader")  # caches what it loads
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("bedrock-runtime", kind)
    for name in ("endpoints", "partitions", "sdk-default-configuration"):
        loader.load_data(name)
    return session


@contextlib.asynccontextmanager
async def open_bedrock(settings: Companions) -> AsyncIterator[Bedrock]:
    """Open a connection pool for Bedrock, which connects on the first call.

    Raises:
        ConfigError: the endpoint is not a URL, or the region is invalid.
    """
    config = AioConfig(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=RESPONSE_TIMEOUT_S,
        max_pool_connections=settings.responses_max,
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    session = await asyncio.to_thread(preload)
    async with contextlib.AsyncExitStack() as stack:
        try:
            sdk = await stack.enter_async_context(
                session.client(
                    "bedrock-runtime",
                    region_name=settings.bedrock_region,
                    config=config,
                )
            )
        except ValueError as exc:
            names = "CHAT_COMPANIONS_BEDROCK_REGION, AWS_ENDPOINT_URL_BEDROCK_RUNTIME"
            raise ConfigError(f"{names}: {exc}") from exc
        yield Bedrock(sdk)


def translate(exc: Exception, server: str) -> ChatError:
    """Convert an SDK exception to a `ChatError`."""
    if not isinstance(exc, ClientError):
        if isinstance(exc, ParserError):
            return Unavailable(f"{server}: the stream is damaged: {exc}", public=MODEL_DOWN)
        return translate_no_response(exc, server, "assistant", public=MODEL_DOWN)
    error: dict[str, Any] = {**exc.response.get("Error", {})}
    code = str(error.get("Code", ""))
    code = code[:1].upper() + code[1:]  # error codes in events start with a lowercase letter
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{server}: {code}: {error.get('Message', '')}"[:500]
    if code in _THROTTLED or status == 429:
        return Overloaded(text, public=MODEL_DOWN)
    if code in _TRANSIENT or status >= 500:
        return Unavailable(text, public=MODEL_DOWN)
    return ConfigError(text)
