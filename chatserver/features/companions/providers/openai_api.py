"""Models behind the OpenAI HTTP API, which vLLM, Ollama, llama.cpp and others also implement.

Responses are chat completions, streamed as server-sent events, with the token usage in the last
chunk. If a server sends no usage, the token counts are estimated.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import openai

from chatserver.errors import MODEL_DOWN, ChatError, ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.interface import (
    Delta,
    End,
    Finish,
    Image,
    ModelMessage,
    ModelRequest,
    Piece,
    ToolCall,
)
from chatserver.features.companions.response_timeouts import RESPONSE_TIMEOUT_S
from chatserver.features.companions.settings import Companions

CONNECT_TIMEOUT_S = 5.0
OPENAI_HOST: Final = "api.openai.com"
_ENDS: dict[str, End] = {
    "length": "length",
    "content_filter": "refused",
    "tool_calls": "tools",
}


class OpenAiApi:
    """Provider `openai`. Call `close` when it is no longer needed."""

    def __init__(self, settings: Companions) -> None:
        self._server = settings.openai_url
        self._sdk = openai.AsyncOpenAI(
            base_url=settings.openai_url,
            # Local servers need no key, but the SDK requires one.
            api_key=settings.openai_key.get_secret_value() or "none",
            max_retries=0,  # retries happen only in `model_call`
            timeout=httpx2.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )
        # OpenAI's own models reject `max_tokens`; some other servers support only `max_tokens`.
        is_openai = urlsplit(settings.openai_url).hostname == OPENAI_HOST
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"

    async def close(self) -> None:
        await self._sdk.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """See `Provider.stream`."""
        end: End | None = None
        usage: Any = None
        calls: dict[int, ToolCall] = {}
        try:
            if await self._is_flagged(request):
                yield Finish("refused", 0, 0)
                return
            stream = await self._sdk.chat.completions.create(
                **build_request(request, self._limit_name)
            )
            async with stream:
                async for chunk in stream:
                    usage = chunk.usage or usage
                    for choice in chunk.choices[:1]:
                        # The text of a refusal is shown to the user like a response.
                        if text := choice.delta.content or choice.delta.refusal:
                            yield Delta(text)
                        for part in choice.delta.tool_calls or ():
                            calls[part.index] = _append_part(
                                calls.get(part.index), part, self._server
                            )
                            yield Delta("")  # an empty delta resets the timeout between deltas
                        if choice.delta.refusal:
                            end = "refused"
                        if choice.finish_reason is not None:
                            end = end or _ENDS.get(choice.finish_reason, "done")
        except (openai.OpenAIError, httpx2.HTTPError, OSError, ValueError) as exc:
            raise translate(exc, self._server) from exc
        if end is None:
            raise Unavailable(f"{self._server}: the stream was interrupted", public=MODEL_DOWN)
        for _, call in sorted(calls.items()):
            yield call
        if usage is None:
            yield Finish(end)
        else:
            yield Finish(end, usage.prompt_tokens, usage.completion_tokens)

    async def _is_flagged(self, request: ModelRequest) -> bool:
        """Return whether the moderation model flags the user's unchecked messages."""
        model = request.options.moderation_model
        if model is None or request.messages[-1].results:
            return False  # the messages were checked before the model made the tool calls
        text = "\n\n".join(
            message.text
            for message in request.messages
            if message.role == "user" and not message.is_checked
        )
        if not text.strip():
            return False
        response = await self._sdk.moderations.create(model=model, input=text)
        return any(result.flagged for result in response.results)


def build_request(request: ModelRequest, limit_name: str) -> dict[str, Any]:
    """Build the parameters for a chat completion; `limit_name` is the one for the token limit."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
    for message in request.messages:
        messages += _build_messages(message)
    params: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit_name: request.answer_tokens_max,
    }
    if request.options.temperature is not None:
        params["temperature"] = request.options.temperature
    if request.options.top_p is not None:
        params["top_p"] = request.options.top_p
    if request.options.tools:
        params["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.options.tools
        ]
    return params


def _build_messages(message: ModelMessage) -> list[dict[str, Any]]:
    if message.results:
        return [
            {"role": "tool", "tool_call_id": result.id, "content": result.text}
            for result in message.results
        ]
    encoded: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.images:
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": _encode_data_url(image)}}
            for image in message.images
        ]
        encoded["content"] = parts + (
            [{"type": "text", "text": message.text}] if message.text else []
        )
    if message.calls:
        encoded["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.input or "{}"},
            }
            for call in message.calls
        ]
    return [encoded]


def _encode_data_url(image: Image) -> str:
    return f"data:{image.type};base64,{base64.b64encode(image.content).decode()}"


def _append_part(call: ToolCall | None, part: Any, server: str) -> ToolCall:
    """Append a chunk of a streamed tool call to `call`, or start one if `call` is None."""
    function = part.function
    name, fragment = (function.name or "", function.arguments or "") if function else ("", "")
    longer = (call or ToolCall("", "", "")).append(fragment, server)
    return dataclasses.replace(longer, id=part.id or longer.id, name=longer.name + name)


def translate(exc: Exception, server: str) -> ChatError:
    """Convert an exception from the SDK, or from a lower layer, to a `ChatError`."""
    text = f"{server}: {type(exc).__name__}: {exc}"[:500]
    if isinstance(exc, openai.RateLimitError):
        return Overloaded(text, public=MODEL_DOWN)
    if isinstance(exc, openai.APIStatusError):
        if exc.status_code >= 500 or exc.status_code in (408, 409):
            return Unavailable(text, public=MODEL_DOWN)
        return ConfigError(text)
    return Unavailable(text, public=MODEL_DOWN)
